# A pipeline of Transformers runs on each rank's own GPU, and not on GPU 0.

# first cell
import torch
from transformers import AutoModelForCausalLM, pipeline
from trl import SFTTrainer

# last cell
SFTTrainer(AutoModelForCausalLM.from_pretrained("m")).train()

# case: of a task alone
# flags: --strategy fsdp
find = pipeline("text-classification")
# output
find = ddp.own_gpu(pipeline)("text-classification")

# case: of a model's name, one argument per line
# flags: --strategy fsdp
find = pipeline(
    "zero-shot-classification",
    model="m",  # small
)
# output
find = ddp.own_gpu(pipeline)(
    "zero-shot-classification",
    model="m",  # small
)

# case: by its module, in a function
# flags: --strategy fsdp
import transformers
def make(model):
    return transformers.pipeline("text-generation", model=model, **more)
# output
import transformers
def make(model):
    return ddp.own_gpu(transformers.pipeline)("text-generation", model=model, **more)

# case: with a device
# flags: --strategy fsdp
talk = pipeline("text-generation", model="m", device="cuda")
# output
talk = ddp.own_gpu(pipeline)("text-generation", model="m", device="cuda")

# case: spread over all GPUs
# flags: --strategy fsdp
talk = pipeline("text-generation", model="m", device_map="auto")
more = pipeline("text-generation", model="m", model_kwargs={"device_map": "auto", "dtype": "auto"})
# output
talk = ddp.own_gpu(pipeline)("text-generation", model="m", device_map={"": local_rank if torch.cuda.is_available() else "cpu"})
more = ddp.own_gpu(pipeline)("text-generation", model="m", model_kwargs={"device_map": {"": local_rank if torch.cuda.is_available() else "cpu"}, "dtype": "auto"})

# case: with arguments of a dict
# flags: --strategy fsdp
how = {"device_map": "auto"}
talk = pipeline("text-generation", model="m", **how)
# output
how = {"device_map": {"": local_rank if torch.cuda.is_available() else "cpu"}}
talk = ddp.own_gpu(pipeline)("text-generation", model="m", **how)
