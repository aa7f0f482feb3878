# What is not Unsloth's function is left alone.

# case: the import alone
from unsloth import unsloth_train

# case: a function of that name
def unsloth_train(trainer):
    pass
unsloth_train(trainer)

# case: another package's
from helpers import unsloth_train
unsloth_train(trainer)

# case: a trainer that cannot be seen
from unsloth import unsloth_train
from trl import SFTTrainer
t = SFTTrainer(model)
unsloth_train(*trainers)
