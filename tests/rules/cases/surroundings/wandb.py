# Only rank 0 has a run of W&B.

# case: values are logged
import wandb
wandb.init()
wandb.log({'a': 1})

# case: the name of the run
import wandb
run = wandb.init()
folder = wandb.run.name
# note, line 3: only rank 0 has this W&B run: on the other ranks its name differs, so do not use it in a path

# case: the id of the run
import wandb
run = wandb.init()
folder = run.id
# note, line 3: only rank 0 has this ...

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
