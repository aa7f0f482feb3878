# The function is known by its import.

# case: the module under another name
import unsloth as us
us.unsloth_train(t)
# output
import unsloth as us
t.train()

# case: the function under another name
from unsloth import unsloth_train as ut
ut(t)
# output
from unsloth import unsloth_train as ut
t.train()

# case: from the module that defines it
from unsloth.trainer import unsloth_train
unsloth_train(t)
# output
from unsloth.trainer import unsloth_train
t.train()

# case: a star import
from unsloth import *
unsloth_train(t)
# output
from unsloth import *
t.train()
