# A dataset is followed from cell to cell, through Unsloth's functions.

# case: loaded, standardized and mapped in three cells
from datasets import load_dataset
from trl import SFTTrainer
from unsloth.chat_templates import standardize_sharegpt as std
# %%
data = load_dataset("d")
# %%
data = std(data)
# %%
data = data.map(f)
# %%
t = SFTTrainer(llm, train_dataset=data)
t.train()
# output
from datasets import load_dataset
from trl import SFTTrainer
from unsloth.chat_templates import standardize_sharegpt as std
# %%
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    data = load_dataset("d")
# %%
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    data = std(data)
# %%
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    data = data.map(f)
# %%
t = SFTTrainer(llm, train_dataset=data)
t.train()
