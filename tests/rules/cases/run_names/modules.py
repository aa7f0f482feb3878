# What a module makes as it is imported cannot be rank 0's: a note says so.

# first cell
%%writefile paths.py
import time
STAMP = time.strftime("%H%M%S")

# case: a name
from paths import STAMP
# note, line 1: the module paths makes a name of the time or an id while it is imported, each rank another one...

# case: what a module measures, prints, and makes in a function
%%writefile logs.py
import time
START = time.time()
print(f"started {time.strftime('%H:%M')}")
def seconds():
    return f"{time.time() - START:.1f}"
def stamp():
    return time.strftime("%H%M%S")
# %%
import logs

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
