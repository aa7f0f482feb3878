# Where no Trainer could search, the advice is to seed the sampler.

# case: Optuna
import optuna
study = optuna.create_study()
study.optimize(objective)
# decline, line 2: this search would draw other values on every rank; train with the best values, or give it a sampler with a seed, as sampler=optuna.samplers.TPESampler(seed=0), and no storage, timeout or n_jobs

# case: an agent of W&B
import wandb
wandb.agent(sweep, train)
# decline, line 2: this search would draw other values on every rank; train with the best values

# last cell
import torch
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters())
for x in batches:
    net(x).mean().backward()
