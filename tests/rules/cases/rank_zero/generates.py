# Rank 0 generates before training, and broadcasts what training needs.

# first cell
import io, json, logging, os, shutil, subprocess, tempfile
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import torch, wandb
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl import DPOTrainer, SFTConfig, SFTTrainer

# case: an object that makes data of settings
from waves import Signals
signals = Signals(16)
rows = signals.generate()
more = signals.generate(256, noise=0.1)

# case: a call
llm.generate(**x)
t = SFTTrainer(llm)
t.train()
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        llm.generate(**x)
t = SFTTrainer(llm)
t.train()

# case: its result read
out = llm.generate(**x)
text = tok.decode(out[0])
print(text)
t = SFTTrainer(llm)
t.train()
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        out = llm.generate(**x)
        text = tok.decode(out[0])
        print(text)
t = SFTTrainer(llm)
t.train()

# case: a tokenizer that is trained
tokenizer.train_from_iterator(rows, trainer=trainer)
tokenizer.enable_padding()
new = old.train_new_from_iterator(rows, 200)
t = SFTTrainer(llm, tokenizer.encode_batch(rows), new)
t.train()
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        tokenizer.train_from_iterator(rows, trainer=trainer)
tokenizer = ddp.from_main_process(lambda: tokenizer)
tokenizer.enable_padding()
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        new = old.train_new_from_iterator(rows, 200)
new = ddp.from_main_process(lambda: new)
t = SFTTrainer(llm, tokenizer.encode_batch(rows), new)
t.train()

# case: in a loop
for q in questions:
    out = llm.generate(**q)
    print(out)
t = SFTTrainer(llm)
t.train()
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        for q in questions:
            out = llm.generate(**q)
            print(out)
t = SFTTrainer(llm)
t.train()

# case: through a function
def ask(q):
    return llm.generate(**q)
print(ask(q))
t = SFTTrainer(llm)
t.train()
# output
def ask(q):
    return llm.generate(**q)
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        print(ask(q))
t = SFTTrainer(llm)
t.train()

# case: with vLLM
out = llm.fast_generate(x)[0].outputs[0].text
out
t = SFTTrainer(llm)
t.train()
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        out = llm.fast_generate(x)[0].outputs[0].text
        out
t = SFTTrainer(llm)
t.train()

# case: mode switches, which run on every rank
from unsloth import FastLanguageModel
FastLanguageModel.for_inference(llm)
out = llm.generate(**x)
FastLanguageModel.for_training(llm)
t = SFTTrainer(llm)
t.train()
# output
from unsloth import FastLanguageModel
FastLanguageModel.for_inference(llm)
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        out = llm.generate(**x)
FastLanguageModel.for_training(llm)
t = SFTTrainer(llm)
t.train()

# case: the training data
data = llm.generate(**x)
t = SFTTrainer(llm, train_dataset=data)
t.train()
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        data = llm.generate(**x)
data = ddp.from_main_process(lambda: data)
t = SFTTrainer(llm, train_dataset=data)
t.train()

# case: the data of a hand-written loop
from torch.utils.data import DataLoader
data = llm.generate(**x)
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()
# output
from torch.utils.data import DataLoader
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        data = llm.generate(**x)
data = ddp.from_main_process(lambda: data)
loader = DataLoader(data)
for b in loader:
    llm(b).loss.backward()

# case: a list that is filled
rows = []
for q in questions:
    out = llm.generate(q)
    rows.append(out)
t = SFTTrainer(llm, train_dataset=Dataset.from_list(rows))
t.train()
# output
rows = []
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        for q in questions:
            out = llm.generate(q)
            rows.append(out)
rows = ddp.from_main_process(lambda: rows)
t = SFTTrainer(llm, train_dataset=Dataset.from_list(rows))
t.train()

# case: a name that a function reads
out = llm.generate(**x)
def reward():
    return out
t = SFTTrainer(llm)
t.train()
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        out = llm.generate(**x)
out = ddp.from_main_process(lambda: out)
def reward():
    return out
t = SFTTrainer(llm)
t.train()

# case: between two trainings
t = SFTTrainer(llm)
t.train()
llm.generate(**x)
llm.save_pretrained("mid")
d = DPOTrainer(llm)
d.train()
llm.generate(**x)
# output
t = SFTTrainer(llm)
t.train()
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        llm.generate(**x)
        llm.save_pretrained("mid")
d = DPOTrainer(llm)
d.train()
llm.generate(**x)

# case: names that a later function has of its own
for words in texts:
    out = llm.generate(**x)
print(x["input_ids"])
def shown(rows):
    for words in rows:
        out = str(words)
    return out
x = shown(x)
t = SFTTrainer(llm)
t.train()
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        for words in texts:
            out = llm.generate(**x)
print(x["input_ids"])
def shown(rows):
    for words in rows:
        out = str(words)
    return out
x = shown(x)
t = SFTTrainer(llm)
t.train()

# case: an evaluation that changes the model, which all ranks train
from transformers import AutoModelForCausalLM
net = AutoModelForCausalLM.from_pretrained("m")
def evaluate(net):
    net.eval()
    return net.generate(**x)
print(evaluate(net.half()))
t = SFTTrainer(net)
t.train()

# case: a method that sets the mode of the model which its object keeps
class Bot:
    def __init__(self, net):
        self.net = net
    def say(self):
        self.net.eval()
        return self.net.generate(**x)
print(Bot(llm).say())
t = SFTTrainer(llm)
t.train()

# case: functions that set attributes and items of what the ranks train with
def ask(text):
    tok.padding_side = "left"
    return llm.generate(**tok(text))
settings = {"rate": 1e-3}
def draw():
    settings["rate"] = 1e-4
    return llm.generate(**x)
print(ask("a"))
print(draw())
t = SFTTrainer(llm)
t.train()

# case: a text that changes what the ranks train with
out = llm.generate(**x)
tok.padding_side = tok.decode(out)
t = SFTTrainer(llm)
t.train()
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        out = llm.generate(**x)
out = ddp.from_main_process(lambda: out)
tok.padding_side = tok.decode(out)
t = SFTTrainer(llm)
t.train()

# case: a function that fills what is its own
def ask(texts):
    answers = []
    for text in texts:
        answers.append(llm.generate(**tok(text)))
    return answers
print(ask(["a"]))
t = SFTTrainer(llm)
t.train()
# output
def ask(texts):
    answers = []
    for text in texts:
        answers.append(llm.generate(**tok(text)))
    return answers
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        print(ask(["a"]))
t = SFTTrainer(llm)
t.train()

# case: a program that starts where each rank generates
import subprocess
from transformers import AutoModelForCausalLM
net = AutoModelForCausalLM.from_pretrained("m")
def sample(text):
    net.eval()
    subprocess.run(["say", text])
    return net.generate(**x)
print(sample("a"))
t = SFTTrainer(net)
t.train()
# output
import subprocess
from transformers import AutoModelForCausalLM
net = AutoModelForCausalLM.from_pretrained("m")
def sample(text):
    net.eval()
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
        if is_main:
            subprocess.run(["say", text])
    return net.generate(**x)
print(sample("a"))
t = SFTTrainer(net)
t.train()

# case: programs of whose results something is made, or which a block starts, where each rank generates
import os, subprocess
from transformers import AutoModelForCausalLM
net = AutoModelForCausalLM.from_pretrained("m")
def sample(text):
    net.eval()
    said = subprocess.check_output(["say", text])
    return net.generate(said)
print(sample("a"))
with quiet():
    os.system("say b")
    net.eval().generate(**x)
t = SFTTrainer(net)
t.train()
# output
import os, subprocess
from transformers import AutoModelForCausalLM
net = AutoModelForCausalLM.from_pretrained("m")
def sample(text):
    net.eval()
    said = ddp.from_main_process(lambda: subprocess.check_output(["say", text]))
    return net.generate(said)
print(sample("a"))
with quiet():
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
        if is_main:
            os.system("say b")
    net.eval().generate(**x)
t = SFTTrainer(net)
t.train()

# case: an object that keeps a function which generates
def sample():
    llm.generate(**x)
class Log:
    def __init__(self, sample):
        self.sample = sample
log = Log(sample)
t = SFTTrainer(llm, callbacks=[log])
t.train()

# case: an object whose making generates
def sample():
    return llm.generate(**x)
class Log:
    def __init__(self, sample):
        self.first = sample()
log = Log(sample)
t = SFTTrainer(llm)
t.train()
# output
def sample():
    return llm.generate(**x)
class Log:
    def __init__(self, sample):
        self.first = sample()
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 generates
    if is_main:
        log = Log(sample)
t = SFTTrainer(llm)
t.train()
