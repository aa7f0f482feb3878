# A loop is divided only before training.

# first cell
import json, random
from pathlib import Path
import torch
from tqdm import tqdm
from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline
from trl import SFTConfig, SFTTrainer

# case: after training, where only rank 0 runs
llm = AutoModelForCausalLM.from_pretrained('m')
tok = AutoTokenizer.from_pretrained('m')
questions = ['a', 'b', 'c']
data = load_dataset('d', split='train')
answers = 1
t = SFTTrainer(llm, args=SFTConfig('o'), train_dataset=answers)
t.train()
answers = []
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)

# case: a notebook that does not train
llm = AutoModelForCausalLM.from_pretrained('m')
tok = AutoTokenizer.from_pretrained('m')
questions = ['a', 'b', 'c']
data = load_dataset('d', split='train')
answers = []
for q in questions:
    out = llm.generate(q, do_sample=False)
    answers.append(out)
