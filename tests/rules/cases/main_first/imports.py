# Functions that fill a cache are known by their import.

# case: the module
import datasets
from trl import SFTTrainer
d = datasets.load_dataset("d")
# output
import datasets
from trl import SFTTrainer
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    d = datasets.load_dataset("d")

# case: the module under another name
import datasets as hf
from trl import SFTTrainer
d = hf.load_dataset("d")
# output
import datasets as hf
from trl import SFTTrainer
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    d = hf.load_dataset("d")

# case: the function under another name
from datasets import load_dataset as ld
from trl import SFTTrainer
d = ld("d")
# output
from datasets import load_dataset as ld
from trl import SFTTrainer
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    d = ld("d")

# case: a star import
from datasets import *
from trl import SFTTrainer
d = load_dataset("d")
# output
from datasets import *
from trl import SFTTrainer
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    d = load_dataset("d")

# case: a download
from huggingface_hub import snapshot_download
from trl import SFTTrainer
d = snapshot_download("d")
# output
from huggingface_hub import snapshot_download
from trl import SFTTrainer
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    d = snapshot_download("d")

# last cell
t = SFTTrainer(llm)
t.train()
