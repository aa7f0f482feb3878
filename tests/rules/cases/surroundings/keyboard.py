# Before training the script cannot wait for the keyboard.

# case: a function of the notebook called input
def input(text):
    return 1
input('x')

# case: input
import getpass
name = input('name? ')
# decline, line 2: input() waits for a keyboard, and a run of several processes has none; write the value here or read it from os.environ

# case: getpass
import getpass
name = getpass.getpass()
# decline, line 2: getpass.getpass() waits for a keyboard, and a run of several processes has none; write the value here or read it from os.environ

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
