# Unsloth passes an argument to PEFT that PEFT before 0.18 does not have.

# first cell
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained("m")

# case: the notebook pins an older PEFT
!pip install unsloth==2026.1.4 peft==0.17.1
# %%
model = FastLanguageModel.get_peft_model(model, r = 16)
# output
!pip install unsloth==2026.1.4 peft==0.17.1
# %%
ddp.drop_weight_tying()  # nb2ddp: Unsloth passes an argument that this PEFT does not have
model = FastLanguageModel.get_peft_model(model, r = 16)

# case: the notebook pins a PEFT that has the argument
!pip install unsloth==2026.1.4 peft==0.18.0
# %%
model = FastLanguageModel.get_peft_model(model, r = 16)
