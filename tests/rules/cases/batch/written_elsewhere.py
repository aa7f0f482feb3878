# The batch is split where it is written: in a dict, a partial, a function.

# first cell
from functools import partial
from trl import DPOConfig, SFTConfig, SFTTrainer

# case: a dict() call
# flags: --strategy fsdp
kw = dict(per_device_train_batch_size=2)
args = SFTConfig("o", **kw)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
kw = dict(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
args = SFTConfig("o", **kw)

# case: a dict that a function gets
# flags: --strategy fsdp
kw = dict(per_device_train_batch_size=2)
def make(cfg):
    return SFTConfig("o", **cfg)
args = make(kw)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
kw = dict(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
def make(cfg):
    return SFTConfig("o", **cfg)
args = make(kw)

# case: a dict in the call
# flags: --strategy fsdp
args = SFTConfig("o", **{"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4})
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 4)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", **{"per_device_train_batch_size": batch_per_rank, "gradient_accumulation_steps": accumulation_per_rank})

# case: a dict without a batch
# flags: --strategy fsdp
kw = dict(output_dir="o")
args = SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4, **kw)
# output
kw = dict(output_dir="o")
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 4)  # nb2ddp: the notebook's batch, split
args = SFTConfig(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank, **kw)

# case: one dict for two runs
# flags: --strategy fsdp
kw = dict(per_device_train_batch_size=2)
a = SFTConfig("a", **kw)
b = SFTConfig("b", **kw)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
kw = dict(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
a = SFTConfig("a", **kw)
b = SFTConfig("b", **kw)

# case: functools.partial
# flags: --strategy fsdp
make = partial(SFTConfig, per_device_train_batch_size=2)
args = make("o")
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
make = partial(SFTConfig, per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
args = make("o")

# case: a function
# flags: --strategy fsdp
def make(b):
  return SFTConfig("o", per_device_train_batch_size=b)
args = make(2)
# output
def make(b):
  batch_per_rank, accumulation_per_rank = ddp.share_batch(b, 1)  # nb2ddp: the notebook's batch, split
  return SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
args = make(2)

# case: two runs
# flags: --strategy fsdp
a = SFTConfig(per_device_train_batch_size=2)
b = DPOConfig(per_device_train_batch_size=4)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
a = SFTConfig(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
batch_per_rank, accumulation_per_rank = ddp.share_batch(4, 1)  # nb2ddp: the notebook's batch, split
b = DPOConfig(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: the trainer's second argument
# flags: --strategy fsdp
t = SFTTrainer(model, SFTConfig("o"))
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(8, 1)  # nb2ddp: the notebook's batch, split
t = SFTTrainer(model, SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank))

# case: keywords that a function passes on
# flags: --strategy fsdp
from trl import SFTConfig
def make(**kw):
    return SFTConfig('o', **kw)
args = make(per_device_train_batch_size=2)
# output
from trl import SFTConfig
def make(**kw):
    return SFTConfig('o', **kw)
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
args = make(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
