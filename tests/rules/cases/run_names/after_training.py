# After training rank 0 is alone, and its names are its own.

# case: a time
import time
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
name = f"{time.time()}"
