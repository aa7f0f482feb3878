# A model is loaded in a type that the GPU has.

# first cell
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TrainingArguments
from trl import SFTConfig, SFTTrainer

# case: torch_dtype
AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.bfloat16)
# output
AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.bfloat16 if ddp.has_bf16 else torch.float16)

# case: dtype as text
AutoModelForCausalLM.from_pretrained("m", dtype="bfloat16")
# output
AutoModelForCausalLM.from_pretrained("m", dtype="bfloat16" if ddp.has_bf16 else "float16")

# case: a variable
dtype = torch.bfloat16  # fast
AutoModelForCausalLM.from_pretrained("m", dtype = dtype)
# output
dtype = torch.bfloat16 if ddp.has_bf16 else torch.float16  # fast
AutoModelForCausalLM.from_pretrained("m", dtype = dtype)

# case: quantised
BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)
# output
BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16 if ddp.has_bf16 else torch.float16)

# case: Accelerate
from accelerate import Accelerator
Accelerator(mixed_precision="bf16")
# output
from accelerate import Accelerator
Accelerator(mixed_precision="bf16" if ddp.has_bf16 else "fp16")

# case: what such a model is given
AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16)
x = {k: v.to("cuda", dtype=torch.bfloat16) for k, v in x.items()}
y = y.to(torch.bfloat16)
# output
AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16 if ddp.has_bf16 else torch.float16)
x = {k: v.to("cuda", dtype=torch.bfloat16 if ddp.has_bf16 else torch.float16) for k, v in x.items()}
y = y.to(torch.bfloat16 if ddp.has_bf16 else torch.float16)

# case: one variable for the model and what it is given
dtype = torch.bfloat16
AutoModelForCausalLM.from_pretrained("m", dtype=dtype)
y = y.to(dtype)
# output
dtype = torch.bfloat16 if ddp.has_bf16 else torch.float16
AutoModelForCausalLM.from_pretrained("m", dtype=dtype)
y = y.to(dtype)

# case: a frozen model, and one whose adapters a loop trains
from peft import get_peft_model
teacher = AutoModelForCausalLM.from_pretrained("t", torch_dtype=torch.bfloat16)
model = get_peft_model(AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.bfloat16), config)
optimizer = torch.optim.AdamW(model.parameters())
# output
from peft import get_peft_model
teacher = AutoModelForCausalLM.from_pretrained("t", torch_dtype=torch.bfloat16 if ddp.has_bf16 else torch.float16)
model = get_peft_model(AutoModelForCausalLM.from_pretrained("m", torch_dtype=torch.bfloat16 if ddp.has_bf16 else torch.float16), config)
optimizer = torch.optim.AdamW(model.parameters())

# case: adapters that a Trainer adds
model = AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16)
trainer = SFTTrainer(model=model, args=SFTConfig("o", bf16=True), peft_config=config)
# output
model = AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16 if ddp.has_bf16 else torch.float16)
trainer = SFTTrainer(model=model, args=SFTConfig("o", bf16=ddp.has_bf16, fp16=not ddp.has_bf16), peft_config=config)

# case: adapters that the model itself adds
model = AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16)
model.add_adapter(config)
trainer = Trainer(model, TrainingArguments("o", bf16=True))
# output
model = AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16 if ddp.has_bf16 else torch.float16)
model.add_adapter(config)
trainer = Trainer(model, TrainingArguments("o", bf16=ddp.has_bf16, fp16=not ddp.has_bf16))

# case: adapters that a switch asks for
from peft import LoraConfig, get_peft_model
USE_LORA = True
model = AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16)
if USE_LORA and not FULL:
    model = get_peft_model(model, LoraConfig(r=8))
trainer = SFTTrainer(model, args=SFTConfig("o", bf16=True))
# output
from peft import LoraConfig, get_peft_model
USE_LORA = True
model = AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16 if ddp.has_bf16 else torch.float16)
if USE_LORA and not FULL:
    model = get_peft_model(model, LoraConfig(r=8))
trainer = SFTTrainer(model, args=SFTConfig("o", bf16=ddp.has_bf16, fp16=not ddp.has_bf16))

# case: adapters under other names
from peft import LoraConfig as Config, get_peft_model as with_weights
model = AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16)
model = with_weights(model, Config(r=8))
trainer = SFTTrainer(model, args=SFTConfig("o", bf16=True))
# output
from peft import LoraConfig as Config, get_peft_model as with_weights
model = AutoModelForCausalLM.from_pretrained("m", dtype=torch.bfloat16 if ddp.has_bf16 else torch.float16)
model = with_weights(model, Config(r=8))
trainer = SFTTrainer(model, args=SFTConfig("o", bf16=ddp.has_bf16, fp16=not ddp.has_bf16))
