# A condition on the clock that ends no training is left alone.

# first cell
import time
from datetime import datetime
from trl import SFTTrainer

# case: waiting for something
while True:
    if time.time() - start > 60:
        raise TimeoutError
t = SFTTrainer(llm)
t.train()

# case: a loop that trains nothing
while time.time() - start < 60:
    time.sleep(1)
t = SFTTrainer(llm)
t.train()

# case: asked on rank 0 only
class Limit:
    def on_step_end(self, args, state, control):
        if state.is_world_process_zero:
            if time.time() > end:
                control.should_training_stop = True
t = SFTTrainer(llm)
t.train()

# case: a report
if time.time() - start > 60:
    print('slow')
t = SFTTrainer(llm)
t.train()

# case: a time that is only kept
start = time.time()
t = SFTTrainer(llm)
t.train()

# case: another condition
start = time.time()
for x in xs:
    if x > 1:
        break
t = SFTTrainer(llm)
t.train()

# case: the time is read inside the block
for x in xs:
    if x:
        y = time.time() > 1
        break
t = SFTTrainer(llm)
t.train()

# case: after training, where only rank 0 runs
t = SFTTrainer(llm)
t.train()
for x in xs:
    if time.time() > end:
        break

# case: a number that rows of a weight get is no flag
import torch
from zoo import build
model = build()
for x in data:
    if model.bias is not None:
        model.bias.data[rows] = 0
    model(x).sum().backward()
