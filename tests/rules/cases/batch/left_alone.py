# What holds no batch is left alone.

# case: a dict that becomes no arguments
x = dict(per_device_train_batch_size=2)

# case: a model's configuration
from transformers import LlamaConfig
c = LlamaConfig(4)

# case: adapters
from peft import LoraConfig
c = LoraConfig(r=16)

# case: code that never runs
from trl import SFTConfig
if False:
    args = SFTConfig("o", per_device_train_batch_size=2)

# case: a class of the notebook
class SFTConfig:
    pass
args = SFTConfig()

# case: a Trainer that is one process's takes the notebook's arguments
from trl import SFTConfig, SFTTrainer
args = SFTConfig("o", per_device_train_batch_size=2, gradient_accumulation_steps=4)
t = SFTTrainer(model, args=args)
t.train()

# case: a batch that each rank would find for itself
from trl import SFTConfig, SFTTrainer
args = SFTConfig("o", auto_find_batch_size=True, per_device_train_batch_size=2)
t = SFTTrainer(model, args=args)
t.train()
# output
from trl import SFTConfig, SFTTrainer
args = SFTConfig("o", auto_find_batch_size=False, per_device_train_batch_size=2)
t = SFTTrainer(model, args=args)
t.train()
# note, line 2: auto_find_batch_size could find another batch on each rank: the script keeps to the batch given here. Where that does not fit on a GPU, the run ends; give a smaller one
