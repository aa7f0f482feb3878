# Files that only this machine has travel with no script.

# first cell
import pandas as pd
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

# case: data, and a model
rows = load_dataset("json", data_files={"train": "mine.jsonl", "test": "https://x.org/test.jsonl"})
model = AutoModelForCausalLM.from_pretrained("./my_model")
frame = pd.read_csv("/kaggle/input/data/a.csv")
# note, line 1: only this machine, or Colab's drive, has `mine.jsonl`, `./my_model`: where the script runs elsewhere, put what it reads there and change the path. To Kaggle `nb2ddp push --upload-data` brings what lies beside the notebook

# case: Colab's drive
out = "/content/drive/MyDrive/out"
# note, line 1: only this machine, or Colab's drive, has `/content/drive/MyDrive/out`: ...

# case: what the notebook makes or fetches itself
import os
os.system("wget -q https://x.org/rows.csv")
frame = pd.read_csv("rows.csv")
frame.to_json("rows.jsonl")
rows = load_dataset("json", data_files="rows.jsonl")
args = TrainingArguments("out")
model = AutoModelForCausalLM.from_pretrained("./out/checkpoint-10")
hub = AutoModelForCausalLM.from_pretrained("me/model")

# case: what a command unpacks has names that are not seen
frame = pd.read_csv("before.csv")
get_ipython().system('gdown --id 1Q1wUptbNDYdfizk5abhmoFxIQiX19Tn7')
frame = pd.read_csv("after.csv")
# note, line 1: only this machine, or Colab's drive, has `before.csv`: ...

# case: a folder whose name is a word of a text
print("the training data is read")
frame = pd.read_csv("./data/rows.csv")
# note, line 2: only this machine, or Colab's drive, has `./data/rows.csv`: ...

# case: a folder that a command makes
get_ipython().system("unzip -q rows.txt -d data")
frame = pd.read_csv("./data/rows.csv")

# case: a folder that the notebook makes
import os
os.makedirs("data/new")
frame = pd.read_csv("data/rows.csv")

# case: folders of a user, and the working folder
from torchvision.datasets import ImageFolder
rows = ImageFolder(root="/home/me/faces")
model = AutoModelForCausalLM.from_pretrained("./")
# note, line 2: only this machine, or Colab's drive, has `/home/me/faces`: ...
