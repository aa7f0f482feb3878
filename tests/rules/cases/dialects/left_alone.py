# Code that is no trace of an earlier attempt at several GPUs is left alone.

# case: an import
from unsloth import FastLanguageModel

# case: a function called wrap
model = wrap(model)

# case: a choice that has nothing to do with ranks
from trl import SFTConfig
a = SFTConfig("o", save_strategy="steps" if long else "no")

# case: an attribute called module
x = thing.module
