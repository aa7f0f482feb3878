# A search that each rank would make for itself is declined.

# case: Optuna
import optuna
study = optuna.create_study()
study.optimize(objective, timeout=60)
# decline, line 2: this search would draw other values on every rank: train with the best values, give an Optuna study no storage, timeout or n_jobs, or use a Trainer's hyperparameter_search()

# case: a study in a store, in which the second rank would find it
import optuna
study = optuna.create_study(storage="sqlite:///a.db")
# decline, line 2: this search would draw other ...

# case: an agent of W&B
import wandb
wandb.agent(sweep, train)
# decline, line 2: this search would draw other ...

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model, train_dataset=d)
trainer.train()
