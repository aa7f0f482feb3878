# After training only rank 0 runs: a server there is the only one, and a question ends nothing that matters.

# first cell
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()

# case: a server
demo.launch(server_port=7860)

# case: a question
question = input()
# note, line 1: input() waits for a keyboard, and a run of several processes has none: it ends here, after training

# case: the name of a run of W&B, in a function too
import wandb
def report(run):
    return f"{run.name}/{wandb.run.id}"
print(report(wandb.init()), wandb.run.name)
