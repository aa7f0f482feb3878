# FP8 needs a newer GPU than a T4: it is noted, with what to do instead; a notebook that chooses is left alone.

# first cell
from unsloth import FastLanguageModel

# case: FP8 weights
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_fp8 = True)
# note, line 1: ... T4 ... load_in_4bit=True ...

# case: FP8 weights on a GPU that has it
# flags: --gpu-memory 40
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_fp8 = True)

# case: four bits
model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B-bnb-4bit", load_in_4bit = True)

# case: FP8 weights below a switch that is off
FP8 = False
if FP8:
    model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_fp8 = True)

# case: FP8 weights below a switch that is on
FP8 = True
if FP8:
    model, tokenizer = FastLanguageModel.from_pretrained("org/Model-8B", load_in_fp8 = True)
else:
    model, tokenizer = FastLanguageModel.from_pretrained("org/Model-7B", load_in_fp8 = True)
# note, line 3: ... T4 ... load_in_4bit=True ...
