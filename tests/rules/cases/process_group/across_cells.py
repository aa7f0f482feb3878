# The process group is joined after the last cell that makes the model.

# case: five cells
from unsloth import FastLanguageModel
from trl import SFTTrainer
llm, tok = FastLanguageModel.from_pretrained("m")
# %%
x = 1
# %%
llm = FastLanguageModel.get_peft_model(llm, r = 16)
# ready
# %%
y = 2
# %%
t = SFTTrainer(llm)
t.train()
# output
from unsloth import FastLanguageModel
from trl import SFTTrainer
llm, tok = FastLanguageModel.from_pretrained("m")
# %%
x = 1
# %%
llm = FastLanguageModel.get_peft_model(llm, r = 16)
ddp.init_process_group()  # nb2ddp: join the process group
# ready
# %%
y = 2
# %%
t = SFTTrainer(llm)
t.train()
