# A walrus gives its name a value in a lambda alone, so what it is given is evaluated on rank 0, not the comparison.

# first cell
import queue
import time
from trl import SFTTrainer

# case: the walrus keeps the time
start = time.time()
while (elapsed := time.time() - start) < 60:
    loss.backward()
    if elapsed > 30:
        print('half of the time')
# output
start = time.time()
while (elapsed := ddp.from_main_process(lambda: time.time() - start)) < 60:
    loss.backward()
    if elapsed > 30:
        print('half of the time')

# case: the walrus keeps something else
for row in rows:
    loss.backward()
    if time.time() - start > (limit := 60 * hours):
        break
# output
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: time.time() - start) > (limit := 60 * hours):
        break

# case: the next item of a queue, which each rank has
items = queue.Queue()
while (item := items.get()) is not None:
    loss.backward()
# output
items = queue.Queue()
while ddp.from_main_process(lambda answer=(item := items.get()) is not None: answer):
    loss.backward()

# case: the next line of a file, which each rank reads
with open("rows.txt") as file:
    while line := file.readline():
        loss.backward()
# output
with open("rows.txt") as file:
    while ddp.from_main_process(lambda answer=(line := file.readline()): answer):
        loss.backward()

# last cell
t = SFTTrainer(llm)
t.train()
