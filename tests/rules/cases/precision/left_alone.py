# What the notebook decides itself is left alone.

# first cell
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments
from trl import SFTConfig, SFTTrainer

# case: a test of the notebook's own
SFTConfig("o", fp16=not is_bf16(), bf16=is_bf16())

# case: fp16
SFTConfig("o", fp16=True)

# case: no bf16
SFTConfig("o", bf16=False)

# case: arguments of something else
render(bf16=True)

# case: a dict that becomes no arguments
kw = {"bf16": True}
render(**kw)

# case: Unsloth's own choice
from unsloth import FastLanguageModel
FastLanguageModel.from_pretrained("m", dtype=None)

# case: a cast of a tensor
x = x.to(torch.bfloat16)

# case: float16
AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.float16)

# case: code that never runs
if False:
    SFTConfig("o", bf16=True)
    AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16)

# case: a model that rank 0 loads after training
trainer = SFTTrainer(model)
trainer.train()
AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16)

# case: a cast, where no model is loaded in bfloat16
import torch
y = y.to(torch.bfloat16)

# case: weights that a Trainer trains, and not only adapters of theirs
model = AutoModelForCausalLM.from_pretrained("m", dtype="bfloat16")
trainer = SFTTrainer(model=model, args=SFTConfig("o", bf16=True))

# case: weights that a loop trains, and not only adapters of theirs
class Run:
    def __init__(self):
        self.net = AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.bfloat16).to("cuda")
        self.optimizer = torch.optim.AdamW([p for p in self.net.parameters() if p.requires_grad])

# case: a model that is trained whole, and a frozen one beside it
from trl import DPOConfig, DPOTrainer
policy = AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16)
reference = AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16)
trainer = DPOTrainer(policy, reference, args=DPOConfig("o", bf16=True))

# case: adapters that a switch leaves out
from peft import LoraConfig, get_peft_model
USE_LORA = False
USE_QLORA = False
config = LoraConfig(r=8)
if USE_LORA or USE_QLORA:
    model = get_peft_model(AutoModelForCausalLM.from_pretrained("m"), config)
else:
    model = AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16)
trainer = SFTTrainer(model, args=SFTConfig("o", bf16=True), peft_config=config if USE_LORA else None)

# case: adapters that a switch says are not there
use_adapters = False
if not use_adapters:
    model = AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16)
else:
    model.add_adapter(config)
trainer = SFTTrainer(model, args=SFTConfig("o", bf16=True))
