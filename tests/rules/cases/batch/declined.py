# A batch that cannot be seen, or cannot be split, is declined at its line.

# first cell
from trl import SFTConfig, SFTTrainer

# case: arguments from a file
args = SFTConfig(**yaml.safe_load(open("c")))
# decline, line 1: nb2ddp cannot tell which batch these training arguments get; write per_device_train_batch_size here

# case: the rest of the arguments comes from several calls
from transformers import TrainingArguments
def arguments(folder, **rest):
    return TrainingArguments(folder, per_device_train_batch_size=8, **rest)
first = arguments("a")
second = arguments("b", max_grad_norm=0.3)
# decline, line 3: nb2ddp cannot tell which batch these training arguments get; write gradient_accumulation_steps here

# case: half here and half there
kw = dict(gradient_accumulation_steps=2)
args = SFTConfig(per_device_train_batch_size=2, **kw)
# decline, line 2: nb2ddp cannot tell which batch ...

# case: a dict that a function gets in two ways
def make(**kw):
    return SFTConfig("o", **kw)
a = make(per_device_train_batch_size=2)
b = make(per_device_train_batch_size=4)
# decline, line 2: nb2ddp cannot tell which batch ...

# case: a dict that a parameter takes in two ways
def make(cfg):
    return SFTConfig("o", **cfg)
a = make(dict(per_device_train_batch_size=2))
b = make(dict(per_device_train_batch_size=4))
# decline, line 2: nb2ddp cannot tell which batch ...

# case: a dict that a parameter may not take
def make(cfg={}):
    return SFTConfig("o", **cfg)
a = make(dict(per_device_train_batch_size=2))
b = make()
# decline, line 2: nb2ddp cannot tell which batch ...

# case: a batch set later
args = SFTConfig("o", per_device_train_batch_size=2)
args.per_device_train_batch_size = 4
# decline, line 2: per_device_train_batch_size is set after the training arguments are made; pass it when they are made

# case: accumulation steps set later
args = SFTConfig("o")
args.gradient_accumulation_steps = 4
# decline, line 2: gradient_accumulation_steps is set after ...

# case: set later through the trainer
t = SFTTrainer(model, args=SFTConfig("o"))
t.args.gradient_accumulation_steps = 4
# decline, line 2: gradient_accumulation_steps is set after ...

# case: made in a lambda
make = lambda: SFTConfig("o", per_device_train_batch_size=2)
# decline, line 1: training arguments made inside an expression cannot be followed; assign them to a variable first

# case: no arguments at all
t = SFTTrainer(model)
# decline, line 1: this Trainer has no training arguments, so its batch cannot be split; pass it args=

# case: arguments of an unknown kind
t = SFTTrainer(model, args=read())
# decline, line 1: nb2ddp cannot tell how this Trainer's arguments are made; make them in a cell of the notebook

# case: a batch that each rank would find for itself
args = SFTConfig("o", auto_find_batch_size=True)
# decline, line 1: auto_find_batch_size would find another batch on each rank; give one that fits instead
