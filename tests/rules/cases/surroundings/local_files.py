# Paths that only this machine, its user or Colab has are noted; what lies beside the notebook, `nb2ddp push` finds.

# first cell
import pandas as pd
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

# case: Colab's drive
out = "/content/drive/MyDrive/out"
frame = pd.read_csv("/content/gdrive/a.csv")
# note, line 1: only this machine, or Colab's, has `/content/drive/MyDrive/out`, `/content/gdrive/a.csv`: where the script runs elsewhere, name it relative to the notebook, and bring what it reads there. To Kaggle `nb2ddp push --upload-data` brings that

# case: Colab's drive, mounted elsewhere
out = "/gdrive/MyDrive/out"
# note, line 1: only this machine, or Colab's, has `/gdrive/MyDrive/out`: ...

# case: Colab's working folder
frame = pd.read_csv("/content/rows/a.csv")
root = "/content/"
# note, line 1: only this machine, or Colab's, has `/content/rows/a.csv`: ...

# case: folders and disks of a user
from torchvision.datasets import ImageFolder
model = AutoModelForCausalLM.from_pretrained("./")
rows = ImageFolder(root="/home/me/faces")
more = ImageFolder("D:/faces"), ImageFolder("/mnt/faces"), ImageFolder("/home/me/faces"), ImageFolder("/media/x")
# note, line 3: only this machine, or Colab's, has `/home/me/faces`, `D:/faces`, `/mnt/faces` and others: ...

# case: what lies beside the notebook, what the hub or Kaggle has, and a drive that is mounted
from google.colab.drive import mount
rows = pd.read_csv("mine.csv")
model = AutoModelForCausalLM.from_pretrained("./my_model")
frame = pd.read_csv("/kaggle/input/data/a.csv")
root = "/content/drive"
if False:
    frame = pd.read_csv("/home/me/a.csv")
text = """/home/me
is a text"""
# output
rows = pd.read_csv("mine.csv")
model = AutoModelForCausalLM.from_pretrained("./my_model")
frame = pd.read_csv("/kaggle/input/data/a.csv")
root = "/content/drive"
if False:
    frame = pd.read_csv("/home/me/a.csv")
text = """/home/me
is a text"""

# case: where only Colab goes, and where it does not
try:
    import google.colab
    IN_COLAB = True
except ImportError:
    IN_COLAB = False
if IN_COLAB:
    root = "/content/drive/MyDrive/a"
else:
    root = "/home/me/a"
# note, line 9: only this machine, or Colab's, has `/home/me/a`: ...

# case: the home of a rented machine, and what its programs keep there
rows = pd.read_csv("/root/data/a.csv")
key = "/root/.kaggle/kaggle.json"
# note, line 1: only this machine, or Colab's, has `/root/data/a.csv`: ...
