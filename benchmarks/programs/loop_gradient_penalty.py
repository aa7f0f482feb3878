# %%
import copy
import csv
import math
import random
from collections import deque
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

def seed_everything(seed=42):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)

seed_everything()
device = "cuda" if torch.cuda.is_available() else "cpu"
# %%
X = torch.randn(70, 8)
y = (X[:, 0] + 0.3 * X[:, 1] > 0).long() + (X[:, 2] > 0.8).long()

real_data = torch.randn(48, 2) + 1
G = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
D = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
opt_g = torch.optim.RMSprop(G.parameters(), lr=1e-3, eps=1e-4)
opt_d = torch.optim.RMSprop(D.parameters(), lr=1e-3, eps=1e-4)

def gradient_penalty(critic, real, fake):
    alpha = torch.rand(real.size(0), 1)
    mixed = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    score = critic(mixed)
    grad, = torch.autograd.grad(score, mixed, torch.ones_like(score), create_graph=True, retain_graph=True)
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()

loader = DataLoader(TensorDataset(real_data), batch_size=8, shuffle=True)
step = 0
for epoch in range(2):
    for (real,) in loader:
        step += 1
        fake = G(torch.randn(len(real), 4)).detach()
        critic_loss = D(fake).mean() - D(real).mean() + 10 * gradient_penalty(D, real, fake)
        opt_d.zero_grad()
        critic_loss.backward()
        opt_d.step()
        if step % 2 == 0:
            gen_loss = -D(G(torch.randn(len(real), 4))).mean()
            opt_g.zero_grad()
            gen_loss.backward()
            opt_g.step()
            print(step, round(critic_loss.item(), 4), round(gen_loss.item(), 4))
