# A write during training is gated without a wait, where it is not sure that all ranks reach it.

# first cell
import io, json, logging, os, shutil, subprocess, tempfile
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import torch, wandb
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl import DPOTrainer, SFTConfig, SFTTrainer

# case: callback
class Log(TrainerCallback):
  def on_log(self, *args, **kw):
    torch.save(1, "x.pt")
t = SFTTrainer(llm, callbacks=[Log()])
# output
class Log(TrainerCallback):
  def on_log(self, *args, **kw):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            torch.save(1, "x.pt")
t = SFTTrainer(llm, callbacks=[Log()])

# case: a picture that a library makes, and a name that is no path
class Samples(TrainerCallback):
  def on_log(self, *args, **kw):
    grid = pipe("a cat")
    grid.save(f"samples/{args[1].global_step}.png")
    grid.save("state")
t = SFTTrainer(llm, callbacks=[Samples()])
# output
class Samples(TrainerCallback):
  def on_log(self, *args, **kw):
    grid = pipe("a cat")
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            grid.save(f"samples/{args[1].global_step}.png")
    grid.save("state")
t = SFTTrainer(llm, callbacks=[Samples()])

# case: metrics
def metrics(p):
    torch.save(1, "x.pt")
    return {}
t = SFTTrainer(llm, compute_metrics=metrics)
# output
def metrics(p):
    if ddp.is_main_process:  # nb2ddp: only rank 0 writes
        torch.save(1, "x.pt")
    return {}
t = SFTTrainer(llm, compute_metrics=metrics)

# case: reward
def reward(completions, **kw):
    torch.save(1, "x.pt")
    return [1.0]
t = SFTTrainer(llm, [reward])
# output
def reward(completions, **kw):
    if ddp.is_main_process:  # nb2ddp: only rank 0 writes
        torch.save(1, "x.pt")
    return [1.0]
t = SFTTrainer(llm, [reward])

# last cell
t.train()
