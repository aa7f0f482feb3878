# Rank 0 writes before training, and the other ranks wait.

# first cell
import io, json, logging, os, shutil, subprocess, tempfile
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import torch, wandb
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl import DPOTrainer, SFTConfig, SFTTrainer

# case: adapters
llm.save_pretrained("start")  # the untrained ones
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        llm.save_pretrained("start")  # the untrained ones

# case: a workbook, opened where its sheets are written
import pandas as pd
with pd.ExcelWriter("a.xlsx") as book:
    figures.to_excel(book, sheet_name="a")
    figures.to_excel(book, sheet_name="b")
# output
import pandas as pd
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        with pd.ExcelWriter("a.xlsx") as book:
            figures.to_excel(book, sheet_name="a")
            figures.to_excel(book, sheet_name="b")

# case: a configuration and a vocabulary
llm.config.to_json_file("config.json")
words.save_vocabulary("words")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        llm.config.to_json_file("config.json")
        words.save_vocabulary("words")

# case: a tokenizer that a library trains into files
import sentencepiece
sentencepiece.SentencePieceTrainer.train(input="rows.txt", model_prefix="words", vocab_size=90)
# output
import sentencepiece
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        sentencepiece.SentencePieceTrainer.train(input="rows.txt", model_prefix="words", vocab_size=90)

# case: a push
llm.push_to_hub("me/m")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        llm.push_to_hub("me/m")

# case: a folder
os.makedirs("out")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.makedirs("out")

# case: a folder that must not exist
os.makedirs("out", exist_ok=False)
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.makedirs("out", exist_ok=False)

# case: a file
with open("a.json", "w") as f:
  json.dump({}, f)
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        with open("a.json", "w") as f:
          json.dump({}, f)

# case: a file in one line
json.dump(x, open("a.json", mode="w"))
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        json.dump(x, open("a.json", mode="w"))

# case: a file opened by its path
with Path("a").open("a") as f:
    f.write("x")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        with Path("a").open("a") as f:
            f.write("x")

# case: a file by its path
Path("a").write_text("x")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        Path("a").write_text("x")

# case: tensors
torch.save(x, "x.pt")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        torch.save(x, "x.pt")

# case: an array
np.save("x.npy", x)
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        np.save("x.npy", x)

# case: a table
df.to_csv("x.csv")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        df.to_csv("x.csv")

# case: a dataset
data.save_to_disk("d")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        data.save_to_disk("d")

# case: a dataset of files, by a library's function
import lance
import pyarrow.dataset as ds
ds.write_dataset(table, "rows", format="parquet")
lance.write_dataset(table, "rows.lance", {"model": "create"})
# output
import lance
import pyarrow.dataset as ds
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        ds.write_dataset(table, "rows", format="parquet")
        lance.write_dataset(table, "rows.lance", {"model": "create"})

# case: a plot
plt.savefig("a.png")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        plt.savefig("a.png")

# case: a folder removed
shutil.rmtree("out", ignore_errors=True)
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        shutil.rmtree("out", ignore_errors=True)

# case: a file is renamed, and its new path is read later
new = Path("a.pt").rename("b.pt")
t = SFTTrainer(llm, rows(new))
t.train()
# output
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    new = Path("a.pt").rename("b.pt")
t = SFTTrainer(llm, rows(new))
t.train()

# case: a path that is named as it is written to
import torch
torch.save(weights, path := "a.pt")
t = SFTTrainer(llm, rows(path))
t.train()
# output
import torch
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    torch.save(weights, path := "a.pt")
t = SFTTrainer(llm, rows(path))
t.train()

# case: a result that is not read later
figure = plt.savefig("a.png")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        figure = plt.savefig("a.png")

# case: a log
from loguru import logger
logger.add("a.log")
# output
from loguru import logger
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        logger.add("a.log")

# case: a log of logging's, which the run keeps to rank 0, whoever opens it
logging.basicConfig(filename="a.log")
handler = logging.FileHandler("b.log")

# case: a data object that saves itself, with a keyword for the path
from lib import Rows
rows = Rows(3)
rows.save(fname="rows.pt", n=10)
# output
from lib import Rows
rows = Rows(3)
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        rows.save(fname="rows.pt", n=10)

# case: a helper file that installs
from requirements import *
install_packages("gpu")
# output
from requirements import *
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        install_packages("gpu")

# case: a command
os.system("ls")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
    if is_main:
        os.system("ls")

# case: a process
subprocess.run(["ls", "-l"], check=True)
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
    if is_main:
        subprocess.run(["ls", "-l"], check=True)

# case: neighbours share a gate, comments stay above
# results
os.makedirs("out")
# the start
llm.save_pretrained("out")  # small
# output
# results
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.makedirs("out")
        # the start
        llm.save_pretrained("out")  # small

# case: the rest of the line is not gated
df.to_csv("a.csv"); x = 1
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        df.to_csv("a.csv")
x = 1

# case: inside an if
if big:
  x = 1
  torch.save(x, 'x.pt')
# output
if big:
  x = 1
  with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
      if is_main:
          torch.save(x, 'x.pt')

# case: inside a for
for i in range(3):
  x = 1
  torch.save(x, 'x.pt')
# output
for i in range(3):
  x = 1
  with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
      if is_main:
          torch.save(x, 'x.pt')

# case: inside a with
with timer:
  x = 1
  torch.save(x, 'x.pt')
# output
with timer:
  x = 1
  with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
      if is_main:
          torch.save(x, 'x.pt')

# case: inside a try
try:
  x = 1
  torch.save(x, 'x.pt')
except OSError:
  pass
# output
try:
  x = 1
  with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
      if is_main:
          torch.save(x, 'x.pt')
except OSError:
  pass

# case: a text of several lines
if big:
  with open("f", "w") as f:
    f.write("""
one
  two""")
# output
if big:
  with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
      if is_main:
          with open("f", "w") as f:
            f.write("""
one
  two""")

# case: behind a colon
if loss < best: best = loss; torch.save(x, "x.pt")
# output
if loss < best:
    best = loss
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            torch.save(x, "x.pt")

# case: the notebook uses our names
is_main = ddp = 1
torch.save(x, "x.pt")
# output
is_main = ddp = 1
with ddp_ddp.main_process_only() as ddp_is_main:  # nb2ddp: only rank 0 writes
    if ddp_is_main:
        torch.save(x, "x.pt")

# case: a Python, which must not be a rank
subprocess.run(["python", "a.py"], check=True)
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
    if is_main:
        subprocess.run(["python", "a.py"], check=True, env=ddp.environment_without_ranks())

# case: a Python with an environment of its own; a program called python
subprocess.run(["python", "a.py"], env=mine)
subprocess.run(["uv", "python", "list"])
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
    if is_main:
        subprocess.run(["python", "a.py"], env=mine)
        subprocess.run(["uv", "python", "list"])

# case: a block that is not left, in a loop
for x in xs:
    with open("a", "w") as f:
        for y in x:
            break
# output
for x in xs:
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            with open("a", "w") as f:
                for y in x:
                    break

# case: a block with a function that returns
for x in xs:
    with open("a", "w") as f:
        def g():
            return 1
# output
for x in xs:
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            with open("a", "w") as f:
                def g():
                    return 1

# last cell
t = SFTTrainer(llm)
t.train()

# case: a download by a name that Python 2 has, too
from six.moves.urllib.request import urlretrieve
urlretrieve("https://x.org/a.gz", "a.gz")
# output
from six.moves.urllib.request import urlretrieve
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        urlretrieve("https://x.org/a.gz", "a.gz")
