# What places no model for training is left alone.

# case: a tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer
tok = AutoTokenizer.from_pretrained("m")

# case: a model that is moved later
from transformers import AutoModelForCausalLM, AutoTokenizer
m = AutoModelForCausalLM.from_pretrained("m")

# case: a configuration
from transformers import AutoConfig
c = AutoConfig.from_pretrained("m")

# case: a class of the notebook
class Cache:
    pass
c = Cache.from_pretrained("m", device_map="auto")

# case: a reload that never runs
from unsloth import FastLanguageModel
if False:
    model, tok = FastLanguageModel.from_pretrained("lora", device_map="auto")

# case: a reload after training
from unsloth import FastLanguageModel
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
model, tok = FastLanguageModel.from_pretrained("lora", device_map="auto")

# case: a configuration that is told of devices
from transformers import AutoConfig
c = AutoConfig.from_pretrained("m", device_map="auto")
