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
