# A block that writes and changes what is read elsewhere runs on every rank; only rank 0 writes.

# first cell
import json, zipfile
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
    with open("rows.jsonl" if ddp.is_main_process else os.devnull, "w") as f:
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
    with open("rows.jsonl" if ddp.is_main_process else os.devnull, "w") as f:
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
