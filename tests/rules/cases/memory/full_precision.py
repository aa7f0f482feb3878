# A model whose copy does not fit on one GPU is noted, with the two figures.

# first cell
from unsloth import FastLanguageModel

# case: 8 billion parameters in 16 bits
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_4bit = False)
# note, line 1: 8 billion parameters, 16 bits: about 17 GiB on each GPU, which has 15 (--gpu-memory). `--strategy fsdp` shards it over 2 GPUs, about 9 GiB on each, and they train at once; `--strategy balanced` makes room in one process, no faster than one GPU

# case: 8 billion parameters in 4 bits
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_4bit = True)

# case: a class of a package out of sight, which may keep the model elsewhere
from petals import AutoDistributedModelForCausalLM
model = AutoDistributedModelForCausalLM.from_pretrained("org/Model-65B")

# case: a class of the notebook
from transformers import LlamaForCausalLM
class Model(LlamaForCausalLM):
    pass
model = Model.from_pretrained("org/Model-65B", torch_dtype="float16")
# note, line 4: 65 billion parameters, ...

# case: an adapter of a model that is loaded in 4 bits
from peft import PeftModel
from transformers import AutoModelForCausalLM, BitsAndBytesConfig
base = AutoModelForCausalLM.from_pretrained("org/Model-7B", quantization_config=BitsAndBytesConfig(load_in_4bit=True))
model = PeftModel.from_pretrained(base, "adapter", torch_dtype="float16")

# case: a larger GPU
# flags: --gpu-memory 40
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_4bit = False)

# case: the model is spread over the GPUs
# flags: --strategy balanced
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_4bit = False)
