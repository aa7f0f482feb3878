# What is no name of a run, or needs more than the clock, is left alone.

# first cell
import os, time, uuid
import datetime as dt
from datetime import datetime
from trl import SFTConfig, SFTTrainer

# case: a time
start = time.time()

# case: a date
start = datetime.now()

# case: a duration
took = time.time() - start

# case: a time that is printed
print(f"{time.time():.1f}")

# case: a name without a time
name = f"run-{number}"

# case: a name that needs another call
name = f"{ask()}-{time.time()}"

# case: a name in a function
def name():
    text = f"{time.time()}"
    return text

# last cell
trainer = SFTTrainer(model)
trainer.train()
