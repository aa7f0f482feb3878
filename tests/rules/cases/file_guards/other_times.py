# Before the group of ranks is needed, and for training itself, nothing is guarded.

# first cell
import glob, os
from pathlib import Path
from trl import SFTTrainer

# case: after training, where only rank 0 runs
trainer = SFTTrainer(model)
trainer.train()
if not os.path.exists("d"):
    os.makedirs("d")

# case: a notebook that does not train
if not os.path.exists("d"):
    os.makedirs("d")

# case: training that depends on a file
import os
from trl import SFTTrainer
trainer = SFTTrainer(model)
if os.path.exists("checkpoint"):
    trainer.train(resume_from_checkpoint=True)
else:
    trainer.train()
# output
import os
from trl import SFTTrainer
trainer = SFTTrainer(model)
if ddp.from_main_process(lambda: os.path.exists("checkpoint")):
    trainer.train(resume_from_checkpoint=True)
else:
    trainer.train()
