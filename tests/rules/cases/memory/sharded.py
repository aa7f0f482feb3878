# Which strategy makes room, and what a sharded model takes: 4 bits are loaded whole first, 16 bits by shares.

# first cell
from unsloth import FastLanguageModel

# case: two GPUs are too few, as each rank loads all of it
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-32B", load_in_4bit = True)
# note, line 1: 32 billion parameters, 4 bits: about 23 GiB on each GPU, which has 15 (--gpu-memory). `--strategy balanced` spreads one model over all GPUs in one process: no faster than one GPU, and room for the model

# case: larger GPUs hold it whole while it is loaded, and not while it is trained
# flags: --gpu-memory 22 --nproc 4
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-32B", load_in_4bit = True)
# note, line 1: 32 billion parameters, 4 bits: about 23 GiB on each GPU, which has 22 (--gpu-memory). `--strategy fsdp` shards it over 4 GPUs, about 21 GiB on each, ...

# case: a Trainer that does not take a sharded model
from trl import GRPOTrainer
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_4bit = False)
trainer = GRPOTrainer(model)
trainer.train()
# note, line 2: 8 billion parameters, 16 bits: about 17 GiB on each GPU, which has 15 (--gpu-memory). `--strategy balanced` spreads...

# case: each rank loads its share
# flags: --strategy fsdp
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_4bit = False)
# head: loads_share=True

# case: four GPUs
# flags: --strategy fsdp --nproc 4
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-32B", load_in_4bit = False)
# note, line 1: 32 billion parameters, 16 bits: about 17 GiB on each GPU, which has 15 (--gpu-memory). `--strategy balanced` spreads one model over all GPUs in one process: no faster than one GPU, and room for the model; or take more GPUs (--nproc)
# head: loads_share=True

# case: DoRA reads the whole weights
# flags: --strategy fsdp --gpu-memory 80
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_4bit = False)
model = FastLanguageModel.get_peft_model(model, use_dora = True)

# case: in 4 bits
# flags: --strategy fsdp
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_4bit = True, loftq_config = None)

# case: generated with before it is sharded
# flags: --strategy fsdp --gpu-memory 80
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_4bit = False)
model.generate(**inputs)
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()

# case: the ranks generate with a model that one of them cannot hold
# flags: --strategy fsdp
from trl import SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_4bit = False)
trainer = SFTTrainer(model)
trainer.train()
model.generate(**inputs)
# note, line 5: generate() gathers the whole model on each GPU, about 24 GiB with its share, and one has 15 (--gpu-memory): delete this, and generate in a run of its own from what is saved
# head: loads_share=True

# case: each of them can hold it
# flags: --strategy fsdp --gpu-memory 40
from trl import SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_4bit = False)
trainer = SFTTrainer(model)
trainer.train()
model.generate(**inputs)
# head: loads_share=True

# case: nothing tells how large it is
# flags: --strategy fsdp
from trl import SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("m", load_in_4bit = True)
trainer = SFTTrainer(model)
trainer.train()
model.generate(**inputs)
