# A walrus gives its name a value in a lambda alone, so what it is given is evaluated on rank 0, not the comparison.

# first cell
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

# last cell
t = SFTTrainer(llm)
t.train()
