# Before training the script cannot wait for the keyboard.

# case: a function of the notebook called input
def input(text):
    return 1
input('x')

# case: input
import getpass
name = input('name? ')
# decline, line 2: input() waits for a keyboard, and a run of several processes has none; read the value from an environment variable (os.environ). A password or a token belongs there or in the platform's secret store, never in the notebook

# case: getpass
import getpass
name = getpass.getpass()
# decline, line 2: getpass.getpass() waits for a keyboard, and a run of several processes has none; read the value from an environment variable (os.environ). A password or a token belongs there or in the platform's secret store, never in the notebook

# case: where a variable gives none
import os
token = os.environ.get("TOKEN") or input()
# note, line 2: input() waits for a keyboard, and a run of several processes has none: set the environment variable that is asked for before it

# case: in a branch that asks for a variable
import getpass, os
token = os.getenv("TOKEN")
if not token:
    token = getpass.getpass()
if "OTHER" not in os.environ:
    os.environ["OTHER"] = input()
# note, line 4: getpass.getpass() waits for a keyboard, and a run of several processes has none: set the environment variable that is asked for before it
# note, line 6: input() waits for a keyboard, and a run of several processes has none: set the environment variable that is asked for before it

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
