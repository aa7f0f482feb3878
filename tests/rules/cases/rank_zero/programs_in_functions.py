# A program that a function starts, or a request that it sends, is run once where all ranks call the function.

# first cell
import os
import shutil
import subprocess
import requests
import torch
from torch.utils.data import DataLoader
from huggingface_hub import HfApi, create_repo, upload_folder
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments

# last cell
trainer = Trainer(model, TrainingArguments("o", per_device_train_batch_size=4, gradient_accumulation_steps=2), train_dataset=data, callbacks=[Upload()], reward_funcs=[runs])
trainer.train()
trainer.train()

# case: a process of asyncio's
import asyncio
async def tell(step):
    await asyncio.create_subprocess_exec("notify", str(step))
asyncio.run(tell(1))
# output
import asyncio
async def tell(step):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
        if is_main:
            await asyncio.create_subprocess_exec("notify", str(step))
asyncio.run(tell(1))

# case: mails, and rows of a database
import smtplib
import pymongo
rows = pymongo.MongoClient()["runs"]["rows"]
def notify(text):
    with smtplib.SMTP("localhost") as server:
        server.sendmail("me", "you", text)
def keep(row):
    return rows.insert_one(row).acknowledged
notify("begun")
print(keep({}))
# output
import smtplib
import pymongo
rows = pymongo.MongoClient()["runs"]["rows"]
def notify(text):
    with smtplib.SMTP("localhost") as server:
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
            if is_main:
                server.sendmail("me", "you", text)
def keep(row):
    return ddp.from_main_process(lambda: rows.insert_one(row)).acknowledged
notify("begun")
print(keep({}))

# case: messages, and rows of a table
from google.cloud import bigquery
from pymongo import MongoClient
from slack_sdk import WebClient
slack, tables, runs = WebClient("token"), bigquery.Client(), MongoClient().runs.rows
def tell(text):
    sent = slack.chat_postMessage(channel="runs", text=text)
    return sent["ts"], tables.insert_rows_json("runs", [{"text": text}])
runs.delete_many({})
print(tell("begun"))
# output
from google.cloud import bigquery
from pymongo import MongoClient
from slack_sdk import WebClient
slack, tables, runs = WebClient("token"), bigquery.Client(), MongoClient().runs.rows
def tell(text):
    sent = ddp.from_main_process(lambda: slack.chat_postMessage(channel="runs", text=text))
    return sent["ts"], ddp.from_main_process(lambda: tables.insert_rows_json("runs", [{"text": text}]))
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
    if is_main:
        runs.delete_many({})
print(tell("begun"))

# case: a request whose method is told, and one that asks
def tell(method, text):
    requests.request("POST", "https://hooks.example.com", json=text)
    with requests.Session() as session:
        session.request(method, "https://hooks.example.com", json=text)
    return requests.request("get", "https://hooks.example.com")
tell("PUT", {})
# output
def tell(method, text):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
        if is_main:
            requests.request("POST", "https://hooks.example.com", json=text)
    with requests.Session() as session:
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
            if is_main:
                session.request(method, "https://hooks.example.com", json=text)
    return requests.request("get", "https://hooks.example.com")
tell("PUT", {})

# case: a callback
class Upload(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        os.system("gsutil cp -r out gs://bucket")
        requests.post("https://hooks.example.com", json={"step": state.global_step})
        shutil.make_archive("all", "zip", "out")
        print(os.path.getsize("all.zip"))
# output
class Upload(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
            if is_main:
                os.system("gsutil cp -r out gs://bucket")
                requests.post("https://hooks.example.com", json={"step": state.global_step})
                shutil.make_archive("all", "zip", "out")
        print(os.path.getsize("all.zip"))

# case: a function whose result is used
def revision():
    return subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True).stdout
def build():
    code = subprocess.call(["make"])
    if code:
        raise SystemExit(1)
print(revision())
build()
where = shutil.make_archive("code", "zip", "src")
print(where)
# output
def revision():
    return ddp.from_main_process(lambda: subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True)).stdout
def build():
    code = ddp.from_main_process(lambda: subprocess.call(["make"]))
    if code:
        raise SystemExit(1)
print(revision())
build()
where = ddp.from_main_process(lambda: shutil.make_archive("code", "zip", "src"))
print(where)

# case: functions of the Hub, and its client
create_repo("me/model", exist_ok=True)
def push(folder):
    upload_folder(folder_path=folder, repo_id="me/model")
push("start")
api = HfApi()
api.upload_large_folder(folder_path="start", repo_id="me/model")
print(api.list_repo_files("me/model"))
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        create_repo("me/model", exist_ok=True)
def push(folder):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            upload_folder(folder_path=folder, repo_id="me/model")
push("start")
api = HfApi()
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        api.upload_large_folder(folder_path="start", repo_id="me/model")
print(api.list_repo_files("me/model"))

# case: a client that has no name, and a result that is read
url = HfApi().create_repo(repo_id="me/model")
print(url)
# output
url = ddp.from_main_process(lambda: HfApi().create_repo(repo_id="me/model"))
print(url)

# case: a reward runs its own programs, and so does a dataset
def runs(completions, **kwargs):
    return [subprocess.run(["python", "-c", text]).returncode for text in completions]
class Sounds(torch.utils.data.Dataset):
    def __getitem__(self, index):
        subprocess.run(["ffmpeg", "-i", self.files[index], f"{index}.wav"])
        return load(f"{index}.wav")

# case: events of which ranks may have different numbers
class Upload(TrainerCallback):
    def on_substep_end(self, args, state, control, **kwargs):
        os.system("date >> times")

# case: below a test for a file, which the ranks that come later find
if not os.path.exists("rows.jsonl"):
    made = subprocess.run(["make", "rows"])
    if made.returncode:
        raise SystemExit(1)

# case: below a test for a file, in a function
def begin(folder, again):
    if os.path.exists(folder):
        print("again")
        os.system(f"rm -rf {folder}")
    elif again:
        if os.path.exists("old"):
            os.system("rm -rf old")
    if os.path.exists("state"):
        state = subprocess.run(["make", "state"])
        return state
begin("out", True)
# output
def begin(folder, again):
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 runs it
        if is_main:
            if os.path.exists(folder):
                print("again")
                os.system(f"rm -rf {folder}")
            elif again:
                if os.path.exists("old"):
                    os.system("rm -rf old")
    if os.path.exists("state"):
        state = subprocess.run(["make", "state"])
        return state
begin("out", True)

# case: below a test for a file, beside what each rank does
def resume(path):
    if os.path.exists(path):
        model.load_state_dict(torch.load(path))
        os.system("true")
resume("last.pt")
