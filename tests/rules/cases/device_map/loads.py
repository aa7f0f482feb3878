# Each rank loads a whole copy of the model onto its own GPU.

# first cell
from unsloth import FastLanguageModel

# case: a model of another name
llm, tok = FastLanguageModel.from_pretrained("m")
# output
llm, tok = FastLanguageModel.from_pretrained("m", device_map={"": local_rank})

# case: one argument per line, comments behind
model, tok = FastLanguageModel.from_pretrained(
    model_name = "m", # the model
    load_in_4bit = True # small
)
# output
model, tok = FastLanguageModel.from_pretrained(
    model_name = "m", # the model
    load_in_4bit = True, # small
    device_map = {"": local_rank},  # nb2ddp: a whole copy on each rank's GPU
)

# case: the module under another name
import unsloth as us
m, p = us.FastVisionModel.from_pretrained("m")
# output
import unsloth as us
m, p = us.FastVisionModel.from_pretrained("m", device_map={"": local_rank})

# case: a star import
from unsloth import *
m, t = FastModel.from_pretrained("m")
# output
from unsloth import *
m, t = FastModel.from_pretrained("m", device_map={"": local_rank})

# case: only the model taken
m = FastLanguageModel.from_pretrained("m")[0]
# output
m = FastLanguageModel.from_pretrained("m", device_map={"": local_rank})[0]

# case: in a function
def load():
    return FastLanguageModel.from_pretrained("m")
m, t = load()
# output
def load():
    return FastLanguageModel.from_pretrained("m", device_map={"": local_rank})
m, t = load()

# case: in a method
class Run:
  def __init__(self):
    self.m, self.t = FastLanguageModel.from_pretrained("m")
# output
class Run:
  def __init__(self):
    self.m, self.t = FastLanguageModel.from_pretrained("m", device_map={"": local_rank})

# case: quantised by Transformers
from transformers import AutoModelForCausalLM, AutoTokenizer
m = AutoModelForCausalLM.from_pretrained("m", quantization_config=bnb)
# output
from transformers import AutoModelForCausalLM, AutoTokenizer
m = AutoModelForCausalLM.from_pretrained("m", quantization_config=bnb, device_map={"": local_rank if torch.cuda.is_available() else "cpu"})

# case: on GPU 0
from transformers import AutoModelForCausalLM, AutoTokenizer
m = AutoModelForCausalLM.from_pretrained("m", device_map={"": 0})
# output
from transformers import AutoModelForCausalLM, AutoTokenizer
m = AutoModelForCausalLM.from_pretrained("m", device_map={"": local_rank if torch.cuda.is_available() else "cpu"})

# case: device_map="auto"
m, t = FastLanguageModel.from_pretrained(device_map = "auto", model_name = "m")
# output
m, t = FastLanguageModel.from_pretrained(device_map = {"": local_rank}, model_name = "m")

# case: device_map="balanced"
m, t = FastLanguageModel.from_pretrained(device_map = "balanced", model_name = "m")
# output
m, t = FastLanguageModel.from_pretrained(device_map = {"": local_rank}, model_name = "m")
# note, line 1: device_map="balanced" lays a model out over the GPUs that a process sees: each rank sees one, which holds the whole model

# case: device_map="sequential"
m, t = FastLanguageModel.from_pretrained(device_map = "sequential", model_name = "m")
# output
m, t = FastLanguageModel.from_pretrained(device_map = {"": local_rank}, model_name = "m")
# note, line 1: device_map="sequential" lays a model out over the GPUs that a process sees: each rank sees one, which holds the whole model

# case: a base model and its adapter
from transformers import AutoModelForCausalLM, AutoTokenizer
from peft import PeftModel
b = AutoModelForCausalLM.from_pretrained("m", device_map="auto")
m = PeftModel.from_pretrained(b, "a", device_map="auto")
# output
from transformers import AutoModelForCausalLM, AutoTokenizer
from peft import PeftModel
b = AutoModelForCausalLM.from_pretrained("m", device_map={"": local_rank if torch.cuda.is_available() else "cpu"})
m = PeftModel.from_pretrained(b, "a", device_map={"": local_rank if torch.cuda.is_available() else "cpu"})

# case: the notebook uses our name
local_rank = 1
m, t = FastLanguageModel.from_pretrained("m")
# output
local_rank = 1
m, t = FastLanguageModel.from_pretrained("m", device_map={"": ddp_local_rank})

# case: before it is sharded
# flags: --strategy fsdp
model, tok = FastLanguageModel.from_pretrained(
    "m"
)
# output
model, tok = FastLanguageModel.from_pretrained(
    "m",
    device_map={"": local_rank},  # nb2ddp: the model on each rank's GPU, before it is sharded
)
