# bf16 in training arguments depends on the GPU, and fp16 takes its place.

# first cell
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments
from trl import SFTConfig, SFTTrainer

# case: one line
args = SFTConfig("o", bf16=True)
# output
args = SFTConfig("o", bf16=ddp.has_bf16, fp16=not ddp.has_bf16)

# case: one per line with a comment
args = TrainingArguments(
    bf16 = True,  # A100
    output_dir = "o",
)
# output
args = TrainingArguments(
    bf16 = ddp.has_bf16,  # A100
    output_dir = "o",
    fp16 = not ddp.has_bf16,  # nb2ddp: a T4 has no bf16
)

# case: by names
fp16 = False
bf16 = True
args = TrainingArguments("out", fp16=fp16, bf16=bf16)
# output
fp16 = False
bf16 = True
args = TrainingArguments("out", fp16=not ddp.has_bf16, bf16=ddp.has_bf16)

# case: fp16 given too
SFTConfig(fp16 = False, bf16 = True)
# output
SFTConfig(fp16 = not ddp.has_bf16, bf16 = ddp.has_bf16)

# case: with tf32
SFTConfig(bf16=True, tf32=True)
# output
SFTConfig(bf16=ddp.has_bf16, tf32=ddp.has_bf16, fp16=not ddp.has_bf16)

# case: evaluated in bf16
SFTConfig(bf16=is_bf16(), bf16_full_eval=True)
# output
SFTConfig(bf16=is_bf16(), bf16_full_eval=ddp.has_bf16)

# case: inside the trainer
SFTTrainer(model, args=SFTConfig("o", bf16=True))
# output
SFTTrainer(model, args=SFTConfig("o", bf16=ddp.has_bf16, fp16=not ddp.has_bf16))

# case: a dict
kw = {"bf16": True, "output_dir": "o"}
SFTConfig(**kw)
# output
kw = {"fp16": not ddp.has_bf16, "bf16": ddp.has_bf16, "output_dir": "o"}
SFTConfig(**kw)

# case: dict()
kw = dict(bf16=True)
SFTConfig("o", **kw)
# output
kw = dict(bf16=ddp.has_bf16, fp16=not ddp.has_bf16)
SFTConfig("o", **kw)

# case: one dict for two
kw = dict(bf16=True)
SFTConfig("a", **kw)
SFTConfig("b", **kw)
# output
kw = dict(bf16=ddp.has_bf16, fp16=not ddp.has_bf16)
SFTConfig("a", **kw)
SFTConfig("b", **kw)

# case: functools.partial
from functools import partial
make = partial(SFTConfig, bf16=True)
# output
from functools import partial
make = partial(SFTConfig, bf16=ddp.has_bf16, fp16=not ddp.has_bf16)

# case: a subclass of the user
class Mine(TrainingArguments):
    pass
Mine("o", bf16=True)
# output
class Mine(TrainingArguments):
    pass
Mine("o", bf16=ddp.has_bf16, fp16=not ddp.has_bf16)
