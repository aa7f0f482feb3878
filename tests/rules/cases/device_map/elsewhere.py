# What else spreads a model over all GPUs puts a whole copy on each rank's.

# first cell
import accelerate
import torch
from diffusers import DiffusionPipeline
from optimum.quanto import QuantizedModelForCausalLM
from peft import PeftModel
from trl import SFTConfig, SFTTrainer

# last cell
SFTTrainer("m", args=args).train()

# case: a checkpoint that is dispatched
model = accelerate.load_checkpoint_and_dispatch(model, "folder", device_map=made)
# output
model = accelerate.load_checkpoint_and_dispatch(model, "folder", device_map={"": local_rank if torch.cuda.is_available() else "cpu"})

# case: a class that nb2ddp does not know
model = QuantizedModelForCausalLM.quantize("m", device_map="auto")
# output
model = QuantizedModelForCausalLM.quantize("m", device_map={"": local_rank if torch.cuda.is_available() else "cpu"})

# case: arguments for the model that a Trainer loads
args = SFTConfig("out", model_init_kwargs={"dtype": "auto", "device_map": "auto"})
# output
args = SFTConfig("out", model_init_kwargs={"dtype": "auto", "device_map": {"": local_rank if torch.cuda.is_available() else "cpu"}})

# case: a library that takes no dict, a function of the notebook, and a map that names a device
image = DiffusionPipeline.from_pretrained("m", device_map="balanced")
made = build(device_map="auto")
settings = {"device_map": "cuda", "map": "auto"}
