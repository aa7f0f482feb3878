# What needs every rank is never gated.

# first cell
import io, json, logging, os, shutil, subprocess, tempfile
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import torch, wandb
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl import DPOTrainer, SFTConfig, SFTTrainer

# case: training
t = SFTTrainer(llm)
stats = t.train(resume_from_checkpoint=True)

# case: evaluation
t = SFTTrainer(llm)
before = t.evaluate()
t.train()

# case: prediction
t = SFTTrainer(llm)
t.train()
predictions = t.predict(test)

# case: saving by the Trainer, for which the other ranks wait once it has trained
t = SFTTrainer(llm)
t.save_model("a")
t.push_to_hub()
t.train()
t.save_model("b")
t.train()
# output
t = SFTTrainer(llm)
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        t.save_model("a")
        t.push_to_hub()
t.train()
t.save_model("b")
t.train()

# case: saving by a Trainer that shards its model
# flags: --strategy fsdp
t = SFTTrainer(llm)
t.save_model("a")
t.push_to_hub()
t.train()

# case: how a Trainer saves
args = SFTConfig("o", save_strategy="steps", logging_steps=1, max_steps=5)
t = SFTTrainer(llm, args=args)
t.train()
