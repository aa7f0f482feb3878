# A function of the notebook that looks for a file, and reads what it has saved there, is one more cache.

# first cell
import os
import numpy as np
import torch
from vectors import Words

def fit(net, rows):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in rows:
        net(x).sum().backward()
        optimizer.step()

# case: an object that saves itself
def load_or_train(texts, folder="words"):
    path = os.path.join(folder, "model.bin")
    if os.path.exists(path):
        words = Words.load(path)
    else:
        words = Words(texts)
        words.save(path)
    return words
words = load_or_train(["a"])
fit(torch.nn.Linear(4, 1), torch.from_numpy(words.table))
# output
def load_or_train(texts, folder="words"):
    path = os.path.join(folder, "model.bin")
    if os.path.exists(path):
        words = Words.load(path)
    else:
        words = Words(texts)
        words.save(path)
    return words
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    words = load_or_train(["a"])
fit(torch.nn.Linear(4, 1), torch.from_numpy(words.table))

# case: what a library trains
from gensim.models import Word2Vec
def load_or_train(texts, path):
    if os.path.exists(path):
        return Word2Vec.load(path)
    words = Word2Vec(sentences=texts, workers=4)
    words.save(path)
    return words
words = load_or_train([["a"]], "words.bin")
fit(torch.nn.Linear(4, 1), torch.from_numpy(words.wv.vectors))
# output
from gensim.models import Word2Vec
def load_or_train(texts, path):
    if os.path.exists(path):
        return Word2Vec.load(path)
    words = Word2Vec(sentences=texts, workers=4)
    words.save(path)
    return words
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    words = load_or_train([["a"]], "words.bin")
fit(torch.nn.Linear(4, 1), torch.from_numpy(words.wv.vectors))

# case: another path than it looks at
def table(folder="words"):
    if os.path.exists(folder):
        return np.load("table.npy")
    return np.ones((3, 4))
rows = table()
fit(torch.nn.Linear(4, 1), torch.from_numpy(rows))

# case: a rank that found the file would draw less, and shuffle otherwise
import random
def load_or_draw(path):
    if os.path.exists(path):
        rows = torch.load(path)
    else:
        rows = [torch.full((4,), random.random()) for _ in range(8)]
        torch.save(rows, path)
    random.shuffle(rows)
    return rows
rows = load_or_draw("rows.pt")
fit(torch.nn.Linear(4, 1), rows)

# case: a file that it makes for a moment, and deletes
def evaluate(net, rows):
    for x in rows:
        np.save("row.npy", x)
        net.read("row.npy")
        if os.path.exists("row.npy"):
            os.remove("row.npy")
evaluate(Words(), range(2))
fit(torch.nn.Linear(4, 1), torch.ones(3, 4))

# case: a folder that it makes for its files
def make(folder):
    if not os.path.exists(folder):
        os.mkdir(folder)
    return os.path.join(folder, "rows")
rows = make("out")
fit(torch.nn.Linear(4, 1), torch.ones(3, 4))
