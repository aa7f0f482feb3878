# A block that writes and changes what is read elsewhere runs on every rank; only rank 0 writes.

# first cell
import json, zipfile
import joblib
import numpy as np
import torch
from trl import SFTTrainer
rows = []

# case: rows that are collected
with open("rows.jsonl", "w") as f:
    for row in data:
        f.write(json.dumps(row))
        rows.append(row)
# output
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    with open("rows.jsonl", "w") as f:
        for row in data:
            f.write(json.dumps(row))
            rows.append(row)

# case: a count that is read later
count = 0
with open("rows.jsonl", "w") as f:
    for row in data:
        f.write(json.dumps(row))
        count += 1
        text = row
steps = count // 8
# output
count = 0
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    with open("rows.jsonl", "w") as f:
        for row in data:
            f.write(json.dumps(row))
            count += 1
            text = row
steps = count // 8

# case: a name that is bound there
with zipfile.ZipFile("a.zip", "w") as archive:
    for row in data:
        archive.write(row)
        last = row
print(last)
# output
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    with zipfile.ZipFile("a.zip", "w") as archive:
        for row in data:
            archive.write(row)
            last = row
print(last)

# case: attributes, in a method
class Log:
    def add(self, row):
        with open("log.txt", "a") as f:
            f.write(row)
            self.rows.append(row)
log = Log()
log.add("a")
# output
class Log:
    def add(self, row):
        with ddp.in_turn():  # nb2ddp: the ranks write one after another
            with open("log.txt" if ddp.is_main_process else os.devnull, "a") as f:
                f.write(row)
                self.rows.append(row)
log = Log()
log.add("a")

# case: attributes, counted and by their keys
class Words:
    def build(self, path, words):
        with open(path, "w") as f:
            for word in words:
                self.ids[word] = len(self.ids)
                f.write(word)
    def count(self, path, words):
        with open(path, "w") as f:
            for word in words:
                self.n += 1
                f.write(word)
words = Words()
words.build("a", "bc")
words.count("b", "bc")
# output
class Words:
    def build(self, path, words):
        with ddp.in_turn():  # nb2ddp: the ranks write one after another
            with open(path, "w") as f:
                for word in words:
                    self.ids[word] = len(self.ids)
                    f.write(word)
    def count(self, path, words):
        with ddp.in_turn():  # nb2ddp: the ranks write one after another
            with open(path, "w") as f:
                for word in words:
                    self.n += 1
                    f.write(word)
words = Words()
words.build("a", "bc")
words.count("b", "bc")

# case: a generator of random numbers that is used again
rng = np.random.default_rng(1)
with open("rows.csv", "w") as f:
    for i in range(8):
        f.write(f"{rng.normal()}")
order = rng.permutation(8)
# output
rng = np.random.default_rng(1)
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    with open("rows.csv", "w") as f:
        for i in range(8):
            f.write(f"{rng.normal()}")
order = rng.permutation(8)

# case: a generator of torch, in a function
g = torch.Generator().manual_seed(1)
def make(path):
    with open(path, "w") as f:
        f.write(str(torch.rand(8, generator=g)))
make("a")
order = torch.randperm(8, generator=g)
# output
g = torch.Generator().manual_seed(1)
def make(path):
    with ddp.in_turn():  # nb2ddp: the ranks write one after another
        with open(path, "w") as f:
            f.write(str(torch.rand(8, generator=g)))
make("a")
order = torch.randperm(8, generator=g)

# case: what a function that is called there changes
ids = {}
def number(word):
    ids[word] = len(ids)
    return ids[word]
with open("a", "w") as f:
    f.write(str(number("b")))
# output
ids = {}
def number(word):
    ids[word] = len(ids)
    return ids[word]
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    with open("a", "w") as f:
        f.write(str(number("b")))

# case: what a function that is called there has made itself
class Mean:
    def __init__(self, rows):
        self.rows = rows
out = {}
def numbers(rows):
    out = {}
    for row in rows:
        out[row] = 1
    return out
with open("a", "w") as f:
    f.write(str(numbers("b")) + str(Mean(2)))
# output
class Mean:
    def __init__(self, rows):
        self.rows = rows
out = {}
def numbers(rows):
    out = {}
    for row in rows:
        out[row] = 1
    return out
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        with open("a", "w") as f:
            f.write(str(numbers("b")) + str(Mean(2)))

# case: what is fitted while it is written
joblib.dump(scaler.fit(data), "a.joblib")
# output
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    joblib.dump(scaler.fit(data), "a.joblib")

# case: what only the block needs
with open("rows.jsonl", "w") as f:
    lines = []
    for row in data:
        lines.append(row)
    f.write("".join(lines))
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        with open("rows.jsonl", "w") as f:
            lines = []
            for row in data:
                lines.append(row)
            f.write("".join(lines))

# last cell
t = SFTTrainer(llm)
t.train()

# case: the oldest of the files that are kept
import os, shutil
from collections import deque
kept, older = [], deque()
def rotate(path):
    kept.append(path)
    if len(kept) > 2:
        os.remove(kept.pop(0))
    while len(older) > 2:
        shutil.rmtree(older.popleft())
rotate("a.pt")
# output
import os, shutil
from collections import deque
kept, older = [], deque()
def rotate(path):
    kept.append(path)
    if len(kept) > 2:
        with ddp.in_turn():  # nb2ddp: the ranks write one after another
            ddp.on_main_process(os.remove)(kept.pop(0))
    while len(older) > 2:
        with ddp.in_turn():  # nb2ddp: the ranks write one after another
            ddp.on_main_process(shutil.rmtree)(older.popleft())
rotate("a.pt")

# case: in a callback, which all ranks run
import os
from transformers import TrainerCallback
class Keep(TrainerCallback):
    files = []
    def on_save(self, args, state, control, **kwargs):
        os.remove(self.files.pop(0))
keep = Keep()
# output
import os
from transformers import TrainerCallback
class Keep(TrainerCallback):
    files = []
    def on_save(self, args, state, control, **kwargs):
        with ddp.in_turn():  # nb2ddp: the ranks write one after another
            ddp.on_main_process(os.remove)(self.files.pop(0))
keep = Keep()

# case: the worst of the files that are kept, from a heap
import heapq
import os
from heapq import heappushpop
from pathlib import Path
best = []
class Keeper:
    def __init__(self):
        self.heap = []
    def add(self, score, path):
        Path(heappushpop(self.heap, (score, path))[1]).unlink()
keeper = Keeper()
keeper.add(0.5, "a.pt")
heapq.heappush(best, (0.5, "b.pt"))
if len(best) > 2:
    os.remove(heapq.heappop(best)[1])
# output
import heapq
import os
from heapq import heappushpop
from pathlib import Path
best = []
class Keeper:
    def __init__(self):
        self.heap = []
    def add(self, score, path):
        with ddp.in_turn():  # nb2ddp: the ranks write one after another
            ddp.on_main_process(Path(heappushpop(self.heap, (score, path))[1]).unlink)()
keeper = Keeper()
keeper.add(0.5, "a.pt")
heapq.heappush(best, (0.5, "b.pt"))
if len(best) > 2:
    with ddp.in_turn():  # nb2ddp: the ranks write one after another
        ddp.on_main_process(os.remove)(heapq.heappop(best)[1])

# case: what looks at a heap changes nothing
import heapq
best = [(0.5, "b.pt")]
with open("best.txt", "w") as f:
    f.write(heapq.nlargest(1, best)[0][1])
# output
import heapq
best = [(0.5, "b.pt")]
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        with open("best.txt", "w") as f:
            f.write(heapq.nlargest(1, best)[0][1])

# case: a rate that the next round reads
rate = 1.0
for turn in range(3):
    rows = make(rate)
    with open("log.txt", "a") as f:
        f.write(str(turn))
        rate = 0.5 if turn else 0.1
# output
rate = 1.0
for turn in range(3):
    rows = make(rate)
    with ddp.in_turn():  # nb2ddp: the ranks write one after another
        with open("log.txt" if ddp.is_main_process else os.devnull, "a") as f:
            f.write(str(turn))
            rate = 0.5 if turn else 0.1

# case: a rate that each round begins with anew
for turn in range(3):
    rate = 1.0
    rows = make(rate)
    with open("log.txt", "a") as f:
        f.write(str(turn))
        rate = 0.5 if turn else 0.1
# output
for turn in range(3):
    rate = 1.0
    rows = make(rate)
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            with open("log.txt", "a") as f:
                f.write(str(turn))
                rate = 0.5 if turn else 0.1
