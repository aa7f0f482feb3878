# What a one-line function or a lambda writes is gated where it is written, not where it is defined.

# first cell
import json
import torch
from torch.utils.data import DataLoader
loader = DataLoader(data)

# case: a function that returns what it wrote
def save(b): return torch.save(b, "best.pt")
for b in loader:
    llm(b).loss.backward()
    save(b)
# output
def save(b):
    with ddp.in_turn():  # nb2ddp: the ranks write one after another
        return torch.save(b, "best.pt")
for b in loader:
    llm(b).loss.backward()
    save(b)

# case: a function that prints to a file
def note(s): print(s, file=open("log.txt", "a"))
for b in loader:
    llm(b).loss.backward()
    note(b)
# output
def note(s):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            print(s, file=open("log.txt", "a"))
for b in loader:
    llm(b).loss.backward()
    note(b)

# case: a lambda in a list
hooks = [lambda b: torch.save(b, "best.pt")]
for b in loader:
    llm(b).loss.backward()
    hooks[0](b)
# note, line 1: this lambda writes on every rank...

# case: a lambda that opens a file
hooks = [lambda b: json.dump(b, open("best.json", "w"))]
for b in loader:
    llm(b).loss.backward()
    hooks[0](b)
# output
hooks = [lambda b: json.dump(b, open("best.json" if ddp.is_main_process else os.devnull, "w"))]
for b in loader:
    llm(b).loss.backward()
    hooks[0](b)

# case: a function that logs to a tracker
import trackio
def note(s): trackio.log({"loss": s})
for b in loader:
    llm(b).loss.backward()
    note(b)
# output
import trackio
def note(s):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            trackio.log({"loss": s})
for b in loader:
    llm(b).loss.backward()
    note(b)

# case: a function that makes a tracker's run
import aim
def start(): return aim.Run()
run = start()
for b in loader:
    llm(b).loss.backward()
    run.track(b)
# output
import aim
def start():
    return ddp.on_main_process(aim.Run)()
run = start()
for b in loader:
    llm(b).loss.backward()
    run.track(b)
