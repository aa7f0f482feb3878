# Only rank 0 has a run of W&B.

# case: values are logged
import wandb
wandb.init()
wandb.log({'a': 1})

# case: a name of the run that each row asks for
import wandb
run = wandb.init()
for row in table:
    callback = Keep(f"runs/{wandb.run.name}")
# note, line 4: only rank 0 has this W&B run: on the other ranks its name differs, so do not use it in a path

# case: names that all ranks get from rank 0
import wandb
run = wandb.init()
folder = wandb.run.name
run.name = "first"

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
