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

# last cell
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
