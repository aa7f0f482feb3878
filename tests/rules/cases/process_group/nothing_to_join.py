# A notebook whose ranks do not need one another joins no process group.

# first cell
from unsloth import FastLanguageModel
from transformers import TrainingArguments
from trl import DPOTrainer, SFTTrainer
llm, tok = FastLanguageModel.from_pretrained("m")

# case: no training
llm.generate(**x)

# case: training that never runs
if False:
    SFTTrainer(llm).train()

# case: training in a function that is never called
def go():
    t = SFTTrainer(llm)
    t.train()
