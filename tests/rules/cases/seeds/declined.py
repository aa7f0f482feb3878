# A search that each rank would make for itself is declined.

# case: Optuna
import optuna
study = optuna.create_study()
study.optimize(objective)
# decline, line 2: this search would draw other values on every rank; train with the best values, give an Optuna study a sampler with a seed and no storage, timeout or n_jobs, or search with a Trainer's hyperparameter_search(), which draws them on rank 0

# case: an agent of W&B
import wandb
wandb.agent(sweep, train)
# decline, line 2: this search would draw other ...

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model, train_dataset=d)
trainer.train()
