# What else spreads a model over all GPUs puts a whole copy on each rank's, where a rank sees them all.

# first cell
from diffusers import DiffusionPipeline
from optimum.quanto import QuantizedModelForCausalLM
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

# case: a class that nb2ddp does not know
GRPOTrainer("m").train()
model = QuantizedModelForCausalLM.quantize("m", device_map="auto")
GRPOTrainer(model).train()
# output
GRPOTrainer("m").train()
model = QuantizedModelForCausalLM.quantize("m", device_map={"": local_rank if torch.cuda.is_available() else "cpu"})
GRPOTrainer(model).train()

# case: arguments for the model that a Trainer loads
args = GRPOConfig("out", model_init_kwargs={"dtype": "auto", "device_map": "auto"})
GRPOTrainer("m", args=args).train()
# output
args = GRPOConfig("out", model_init_kwargs={"dtype": "auto", "device_map": {"": local_rank if torch.cuda.is_available() else "cpu"}})
GRPOTrainer("m", args=args).train()

# case: a library that takes no dict, a function of the notebook, and a map that names a device
image = DiffusionPipeline.from_pretrained("m", device_map="balanced")
made = build(device_map="auto")
settings = {"device_map": "cuda", "map": "auto"}
GRPOTrainer("m").train()

# case: a rank sees its own GPU alone
model = QuantizedModelForCausalLM.quantize("m", device_map="auto")
args = SFTConfig("out", model_init_kwargs={"dtype": "auto", "device_map": "auto"})
SFTTrainer("m", args=args).train()

# case: arguments that are out of sight
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained("m", **read("model.json"))
GRPOTrainer(model).train()
# decline, line 2: nb2ddp cannot tell whether a device_map is among these arguments; write them out in the call

# case: arguments that are out of sight, where a rank sees its own GPU alone
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained("m", **read("model.json"))
SFTTrainer(model).train()
