# A command whose result is read runs on rank 0, and all ranks get the result.

# first cell
import io, json, logging, os, shutil, subprocess, tempfile
from pathlib import Path
import matplotlib.pyplot as plt
import numpy as np
import torch, wandb
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl import DPOTrainer, SFTConfig, SFTTrainer

# case: what a service answers, which costs, and may be another thing each time
from openai import OpenAI
client = OpenAI()
def judged(completions, **more):
    return [client.chat.completions.create(model="m", messages=c).usage for c in completions]
def texts(row):
    return client.chat.completions.create(model="m", messages=[row]).choices[0].message.content
rows = [texts(row) for row in rows]
parts = client.chat.completions.create(model="m", messages=[], stream=True)
trainer = SFTTrainer(rows, judged, parts)
# output
from openai import OpenAI
client = OpenAI()
def judged(completions, **more):
    return [client.chat.completions.create(model="m", messages=c).usage for c in completions]
def texts(row):
    return ddp.from_main_process(lambda: client.chat.completions.create(model="m", messages=[row])).choices[0].message.content
rows = [texts(row) for row in rows]
parts = client.chat.completions.create(model="m", messages=[], stream=True)
trainer = SFTTrainer(rows, judged, parts)

# case: a program
r = subprocess.run(["make", "all"])
# output
r = ddp.from_main_process(lambda: subprocess.run(["make", "all"]))

# case: a program whose output a shell line reads
made = shutil.make_archive("a", "zip", "d")
!unzip -l {made}
listed = subprocess.check_output(["ls"])
lines = !cat {listed}
# output
made = ddp.from_main_process(lambda: shutil.make_archive("a", "zip", "d"))
!unzip -l {made}
listed = ddp.from_main_process(lambda: subprocess.check_output(["ls"]))
lines = !cat {listed}

# case: a program with an argument of that name
r = subprocess.run(["./deploy", "x", "--version"])
# output
r = ddp.from_main_process(lambda: subprocess.run(["./deploy", "x", "--version"]))

# case: the version of a program
r = subprocess.run([shutil.which("uv"), "--version"], capture_output=True)
# output
r = ddp.from_main_process(lambda: subprocess.run([shutil.which("uv"), "--version"], capture_output=True))

# case: the list of GPUs, through the shell
r = subprocess.run("nvidia-smi -L", shell=True, capture_output=True)
# output
r = ddp.from_main_process(lambda: subprocess.run("nvidia-smi -L", shell=True, capture_output=True))

# case: more than a question
r = subprocess.run("nvidia-smi > gpus.txt; make", shell=True)
# output
r = ddp.from_main_process(lambda: subprocess.run("nvidia-smi > gpus.txt; make", shell=True))

# case: what a name holds
r = subprocess.run(command)
# output
r = ddp.from_main_process(lambda: subprocess.run(command))

# case: a program that goes on beside the script
r = subprocess.Popen(["make", "all"])
# output
r = ddp.shared_process(subprocess.Popen)(["make", "all"])

# case: a program that is started where none answers: the second rank finds it
try:
    wandb.login()
except OSError:
    server = subprocess.Popen(["serve"])
    atexit.register(server.kill)
# output
with ddp.main_process_first():  # nb2ddp: rank 0 goes first, the others find what it has started
    try:
        wandb.login()
    except OSError:
        server = subprocess.Popen(["serve"])
        atexit.register(server.kill)

# case: a Python
r = subprocess.run(["python", "prepare.py"])
# output
r = ddp.from_main_process(lambda: subprocess.run(["python", "prepare.py"], env=ddp.environment_without_ranks()))

# case: what a program prints
r = subprocess.getoutput("make all")
lines = os.popen("make all").read().split()
print(lines)
def made(command):
    return os.popen(command).readlines()
made("make all")
os.popen("make clean").read()
os.spawnlp(os.P_WAIT, "make", "make", "clean")
# output
r = ddp.from_main_process(lambda: subprocess.getoutput("make all"))
lines = ddp.shared_process(os.popen)("make all").read().split()
print(lines)
def made(command):
    return ddp.shared_process(os.popen)(command).readlines()
made("make all")
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
    if is_main:
        os.popen("make clean").read()
        os.spawnlp(os.P_WAIT, "make", "make", "clean")

# case: vectors that a library trains in several threads, which no seed makes equal twice
from gensim.models import Word2Vec
r = Word2Vec(sentences=rows, workers=4)
# output
from gensim.models import Word2Vec
r = ddp.from_main_process(lambda: Word2Vec(sentences=rows, workers=4))

# case: messages of a session
import requests
class Notifier:
    def __init__(self):
        self.session = requests.Session()
    def send(self, text):
        return self.session.post("https://chat", json={"text": text})
    def ask(self):
        return self.session.get("https://chat")
notifier = Notifier()
print(notifier.send("begun"), notifier.ask())
# output
import requests
class Notifier:
    def __init__(self):
        self.session = requests.Session()
    def send(self, text):
        return ddp.from_main_process(lambda: self.session.post("https://chat", json={"text": text}))
    def ask(self):
        return self.session.get("https://chat")
notifier = Notifier()
print(notifier.send("begun"), notifier.ask())

# case: a program that is read while it runs
p = os.popen("make all")
print(p.readline())
with subprocess.Popen(["make", "all"]) as other:
    code = other.wait()
print(code)
class Sync(TrainerCallback):
    def on_log(self, args, state, control, **kwargs):
        self.sending = subprocess.Popen(["rsync", "out", "there:"])
DPOTrainer(model, callbacks=[Sync()])
# output
p = ddp.shared_process(os.popen)("make all")
print(p.readline())
with ddp.shared_process(subprocess.Popen)(["make", "all"]) as other:
    code = other.wait()
print(code)
class Sync(TrainerCallback):
    def on_log(self, args, state, control, **kwargs):
        self.sending = ddp.shared_process(subprocess.Popen)(["rsync", "out", "there:"])
DPOTrainer(model, callbacks=[Sync()])

# case: a program that is ended by its number
p = subprocess.Popen(["make", "all"])
os.kill(p.pid, 15)
# note, line 1: this runs on every rank, because its result is used later

# case: a program whose output a thread reads
from threading import Thread
p = subprocess.Popen(["make", "all"], stdout=subprocess.PIPE)
Thread(target=print, args=(p.stdout,)).start()
# note, line 2: this runs on every rank, because its result is used later

# case: an artifact of W&B
import wandb
def read():
    with wandb.init(project="p") as run:
        artifact = run.use_artifact("rows:latest")
        folder = artifact.download()
    return open(f"{folder}/rows").read()
rows = read()
other = wandb.Api().artifact("me/p/rows").get_entry("a.pt").download()
print(other)
# output
import wandb
def read():
    with wandb.init(project="p") as run:
        artifact = run.use_artifact("rows:latest")
        folder = ddp.from_main_process(lambda: artifact.download())
    return open(f"{folder}/rows").read()
rows = read()
other = ddp.from_main_process(lambda: wandb.Api().artifact("me/p/rows").get_entry("a.pt").download())
print(other)

# case: an artifact of W&B, where a rank may come alone
class Rows(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return Path(wandb.use_artifact(f"row-{index}").download())
rows = Rows()
# note, line 3: only rank 0 has this W&B run: download the artifact in a cell, and pass its folder on

# last cell
if r.returncode == 0:
    print(r)
t = SFTTrainer(llm)
t.train()
