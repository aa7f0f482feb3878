# A notebook with Unsloth and a Trainer becomes a script: all rules together, below the head.

# case: a notebook in four cells
%%capture
!pip install unsloth
# %%
from unsloth import FastLanguageModel
import torch
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "org/Model-1B",
    load_in_4bit = True,
)
model = FastLanguageModel.get_peft_model(model, r = 16)
# %%
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
dataset = load_dataset("org/data", split = "train")
trainer = SFTTrainer(
    model = model,
    train_dataset = dataset,
    args = SFTConfig(
        per_device_train_batch_size = 2,
        gradient_accumulation_steps = 4,
        output_dir = "outputs",
    ),
)
trainer_stats = trainer.train()
# %%
model.save_pretrained("lora")
trainer_stats
# output
# nb2ddp: this cell's installs run once, in setup_env.py
# %%
from unsloth import FastLanguageModel
import torch
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "org/Model-1B",
    load_in_4bit = True,
    device_map = {"": local_rank},  # nb2ddp: a whole copy on each rank's GPU
)
model = FastLanguageModel.get_peft_model(model, r = 16)
ddp.init_process_group()  # nb2ddp: join the process group
# %%
from datasets import load_dataset
from trl import SFTConfig, SFTTrainer
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    dataset = load_dataset("org/data", split = "train")
trainer = SFTTrainer(
    model = model,
    train_dataset = dataset,
    args = SFTConfig(
        per_device_train_batch_size = 2,
        gradient_accumulation_steps = 4,
        output_dir = "outputs",
    ),
)
ddp_model = ddp.wrap_trainer(trainer)  # nb2ddp: the ranks divide each step, and sum the gradients
trainer_stats = trainer.train()
ddp.check_replicas(ddp_model)
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# %%
model.save_pretrained("lora")
ddp.show(trainer_stats)

# case: a notebook that does not train
from transformers import pipeline
pipe = pipeline("text-generation", model = "org/Model-1B")
print(pipe("Hello"))
# decline, line 2: nb2ddp sees no training here that it could convert: it loads a model here, and no cell has a Trainer that it knows...

# case: Trainers without a name
from transformers import AutoModel, Trainer, TrainingArguments
model = AutoModel.from_pretrained("org/Model-100M")
# %%
before = Trainer(model, eval_dataset=rows).evaluate()
# the training
result = Trainer(
    model,
    TrainingArguments("out", bf16=True),
    train_dataset=rows,
).train()
# %%
model.save_pretrained("final")
# output
from transformers import AutoModel, Trainer, TrainingArguments
model = AutoModel.from_pretrained("org/Model-100M")
ddp.init_process_group()  # nb2ddp: join the process group
# %%
trainer = Trainer(model, eval_dataset=rows)
ddp.prepare_trainer(trainer)  # nb2ddp: the ranks divide its batches
before = trainer.evaluate()
# the training
trainer_2 = Trainer(
    model,
    TrainingArguments("out", bf16=ddp.has_bf16, fp16=not ddp.has_bf16),
    train_dataset=rows,
)
ddp_model = ddp.wrap_trainer(trainer_2)  # nb2ddp: the ranks divide each step, and sum the gradients
result = trainer_2.train()
ddp.check_replicas(ddp_model)
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# %%
model.save_pretrained("final")
