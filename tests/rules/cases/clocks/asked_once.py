# A condition on the clock that ends training is evaluated on rank 0 for all ranks.

# first cell
import time
from datetime import datetime
from trl import SFTTrainer

# case: in a hand-written loop
for row in rows:
    loss.backward()
    if time.time() - start > LIMIT:
        break
# output
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: time.time() - start > LIMIT):
        break

# case: what it decides makes a text, which all ranks get from rank 0
for epoch in range(3):
    for row in rows:
        loss.backward()
    if time.time() - last > 60:
        text = f"{datetime.now()}"
# output
for epoch in range(3):
    for row in rows:
        loss.backward()
    if ddp.from_main_process(lambda: time.time() - last > 60):
        text = f"{datetime.now()}"

# case: parentheses directly behind a keyword
for row in rows:
    loss.backward()
    if(time.time() - start > LIMIT):
        break
    if not(time.time() - start < LIMIT)and(row):
        break
    if(time.time() - start)>LIMIT or(row):
        break
    if(time.time() > start)or(row):
        break
# output
for row in rows:
    loss.backward()
    if(ddp.from_main_process(lambda: (time.time() - start > LIMIT))):
        break
    if not(ddp.from_main_process(lambda: (time.time() - start < LIMIT)))and(row):
        break
    if(ddp.from_main_process(lambda: (time.time() - start)>LIMIT)) or(row):
        break
    if(ddp.from_main_process(lambda: (time.time() > start)))or(row):
        break

# case: a duration that is kept in a variable
from transformers import TrainerCallback
class Limit(TrainerCallback):
    def on_step_end(self, args, state, control):
        spent = time.perf_counter() - start
        if spent > 60:
            control.should_training_stop = True
# output
from transformers import TrainerCallback
class Limit(TrainerCallback):
    def on_step_end(self, args, state, control):
        spent = time.perf_counter() - start
        if ddp.from_main_process(lambda: spent > 60):
            control.should_training_stop = True

# case: a loop around train()
tr = SFTTrainer(llm)
for i in range(9):
    tr.train()
    if time.monotonic() > end:
        raise SystemExit
# output
tr = SFTTrainer(llm)
for i in range(9):
    tr.train()
    if ddp.from_main_process(lambda: time.monotonic() > end):
        raise SystemExit

# case: only the clock's part of a condition
for x in xs:
    x.backward()
    if loss < 1 or datetime.now() > end:
        break
# output
for x in xs:
    x.backward()
    if loss < 1 or ddp.from_main_process(lambda: datetime.now() > end):
        break

# case: a loop as long as there is time
while time.time() - start < 60 and step < 100:
    loss.backward()
    step += 1
# output
while ddp.from_main_process(lambda: time.time() - start < 60) and step < 100:
    loss.backward()
    step += 1

# case: a method that answers
class Loop:
    def is_over(self):
        return time.time() - self.start > 60
    def run(self):
        for row in rows:
            loss.backward()
            if not more or self.is_over():
                break
loop = Loop()
loop.run()
# output
class Loop:
    def is_over(self):
        return time.time() - self.start > 60
    def run(self):
        for row in rows:
            loss.backward()
            if not more or ddp.from_main_process(lambda: self.is_over()):
                break
loop = Loop()
loop.run()

# last cell
t = SFTTrainer(llm)
t.train()
