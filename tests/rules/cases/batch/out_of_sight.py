# The run splits a batch that the conversion cannot see, once the arguments are made.

# first cell
from trl import SFTConfig, SFTTrainer
def trainer(args):
    return SFTTrainer(model, args=args)

# case: arguments from a file
args = SFTConfig(**yaml.safe_load(open("c")))
# output
args = ddp.share_arguments(SFTConfig(**yaml.safe_load(open("c"))))

# case: the rest of the arguments comes from several calls
from transformers import TrainingArguments
def arguments(folder, **rest):
    return TrainingArguments(folder, per_device_train_batch_size=8, **rest)
first = arguments("a")
second = arguments("b", max_grad_norm=0.3)
# output
from transformers import TrainingArguments
def arguments(folder, **rest):
    return ddp.share_arguments(TrainingArguments(folder, per_device_train_batch_size=8, **rest))
first = arguments("a")
second = arguments("b", max_grad_norm=0.3)

# case: half here and half there
kw = dict(gradient_accumulation_steps=2)
args = SFTConfig(per_device_train_batch_size=2, **kw)
# output
kw = dict(gradient_accumulation_steps=2)
args = ddp.share_arguments(SFTConfig(per_device_train_batch_size=2, **kw))

# case: a dict that a function gets in two ways
def make(**kw):
    return SFTConfig("o", **kw)
a = make(per_device_train_batch_size=2)
b = make(per_device_train_batch_size=4)
# output
def make(**kw):
    return ddp.share_arguments(SFTConfig("o", **kw))
a = make(per_device_train_batch_size=2)
b = make(per_device_train_batch_size=4)

# case: a dict that a parameter may not take
def make(cfg={}):
    return SFTConfig("o", **cfg)
a = make(dict(per_device_train_batch_size=2))
b = make()
# output
def make(cfg={}):
    return ddp.share_arguments(SFTConfig("o", **cfg))
a = make(dict(per_device_train_batch_size=2))
b = make()

# case: a dict that is changed
settings = dict(output_dir="o", per_device_train_batch_size=2)
settings.update(overrides)
t = SFTTrainer(model, args=SFTConfig(**settings))
# output
settings = dict(output_dir="o", per_device_train_batch_size=2)
settings.update(overrides)
t = SFTTrainer(model, args=ddp.share_arguments(SFTConfig(**settings)))
