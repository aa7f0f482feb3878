# The process group is joined after the model is loaded, before anything needs the other ranks.

# first cell
from unsloth import FastLanguageModel
from transformers import TrainingArguments
from trl import DPOTrainer, SFTTrainer

# case: after the adapters
llm, tok = FastLanguageModel.from_pretrained("m")
llm = FastLanguageModel.get_peft_model(llm, r = 16)
t = SFTTrainer(llm)
t.train()
# output
llm, tok = FastLanguageModel.from_pretrained("m")
llm = FastLanguageModel.get_peft_model(llm, r = 16)
ddp.init_process_group()  # nb2ddp: join the process group
t = SFTTrainer(llm)
t.train()

# case: before arguments, which start Accelerate
llm, tok = FastLanguageModel.from_pretrained("m")
args = TrainingArguments("o")
t = SFTTrainer(llm)
t.train()
# output
llm, tok = FastLanguageModel.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group
args = TrainingArguments("o")
t = SFTTrainer(llm)
t.train()

# case: before arguments that stand above the load
args = TrainingArguments("o")
llm, tok = FastLanguageModel.from_pretrained("m")
t = SFTTrainer(llm)
t.train()
# output
ddp.init_process_group()  # nb2ddp: join the process group
args = TrainingArguments("o")
llm, tok = FastLanguageModel.from_pretrained("m")
t = SFTTrainer(llm)
t.train()

# case: after a load in a function
def load():
    return FastLanguageModel.from_pretrained("m")
llm, tok = load()
t = SFTTrainer(llm)
t.train()
# output
def load():
    return FastLanguageModel.from_pretrained("m")
llm, tok = load()
ddp.init_process_group()  # nb2ddp: join the process group
t = SFTTrainer(llm)
t.train()

# case: after a load under an if
if True:
  llm, tok = FastLanguageModel.from_pretrained("m")
t = SFTTrainer(llm)
t.train()
# output
if True:
  llm, tok = FastLanguageModel.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group
t = SFTTrainer(llm)
t.train()

# case: once for two trainers
llm, tok = FastLanguageModel.from_pretrained("m")
t = SFTTrainer(llm)
t.train()
d = DPOTrainer(llm)
d.train()
# output
llm, tok = FastLanguageModel.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group
t = SFTTrainer(llm)
t.train()
d = DPOTrainer(llm)
d.train()

# case: before a trainer that loads by itself
t = SFTTrainer("m")
t.train()
# output
ddp.init_process_group()  # nb2ddp: join the process group
t = SFTTrainer("m")
t.train()

# case: before a function that only trains
def go(llm):
    t = SFTTrainer(llm)
    t.train()
go(llm)
# output
def go(llm):
    t = SFTTrainer(llm)
    t.train()
ddp.init_process_group()  # nb2ddp: join the process group
go(llm)

# case: inside a function that loads and trains
def main():
    llm, tok = FastLanguageModel.from_pretrained("m")
    t = SFTTrainer(llm)
    t.train()
main()
# output
def main():
    llm, tok = FastLanguageModel.from_pretrained("m")
    ddp.init_process_group()  # nb2ddp: join the process group
    t = SFTTrainer(llm)
    t.train()
main()

# case: inside a block that loads and trains
with profiler:
    llm, tok = FastLanguageModel.from_pretrained("m")
    t = SFTTrainer(llm)
    t.train()
# output
with profiler:
    llm, tok = FastLanguageModel.from_pretrained("m")
    ddp.init_process_group()  # nb2ddp: join the process group
    t = SFTTrainer(llm)
    t.train()

# case: a reload after training
llm, tok = FastLanguageModel.from_pretrained("m")
t = SFTTrainer(llm)
t.train()
llm, tok = FastLanguageModel.from_pretrained("m")
# output
llm, tok = FastLanguageModel.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group
t = SFTTrainer(llm)
t.train()
llm, tok = FastLanguageModel.from_pretrained("m")

# case: model.train(), which loads nothing
llm, tok = FastLanguageModel.from_pretrained("m")
x = 1
llm = llm.to("cuda")
llm.train()
t = SFTTrainer(llm)
t.train()
# output
llm, tok = FastLanguageModel.from_pretrained("m")
ddp.init_process_group()  # nb2ddp: join the process group
x = 1
llm = llm.to("cuda")
llm.train()
t = SFTTrainer(llm)
t.train()
