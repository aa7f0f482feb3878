# Training arguments that let DeepSpeed make the steps are declined, and those that could and do not are not.

# first cell
from transformers import Trainer, TrainingArguments
settings = {"zero_optimization": {"stage": 0}}

# case: settings by their name
args = TrainingArguments("out", deepspeed=settings)
trainer = Trainer(model, args)
trainer.train()
# decline, line 1: this notebook trains with DeepSpeed...`deepspeed --num_gpus 2 script.py`

# case: a function that is told by its parameter
def train(model, deepspeed=True):
    args = TrainingArguments("out", deepspeed=settings if deepspeed else None)
    Trainer(model, args).train()
train(model)
# decline, line 2: this notebook trains with DeepSpeed...

# case: an item of settings that are read
import json
config = json.load(open("config.json"))
args = TrainingArguments("out", deepspeed=config["zero"])
trainer = Trainer(model, args)
trainer.train()
# decline, line 3: this notebook trains with DeepSpeed...

# case: items of a dict
config = {"zero": settings, "none": None}
args = TrainingArguments("out", deepspeed=config["none"])
trainer = Trainer(model, args)
trainer.train()

# case: none
args = TrainingArguments("out", deepspeed=None)
trainer = Trainer(model, args)
trainer.train()
