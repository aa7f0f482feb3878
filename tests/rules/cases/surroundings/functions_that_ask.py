# A function that asks for a text may do so where it is called after training alone.

# first cell
from trl import SFTTrainer

# case: called after training, by a method and out of a list
def ask():
    return input("you: ")
class State:
    def __init__(self, entry):
        self.entry = entry
    def enter(self):
        self.entry()
states = [State(ask)]
trainer = SFTTrainer(model)
trainer.train()
for state in states:
    state.enter()
# note, line 2: input() waits for a keyboard, and a run of several processes has none: it ends here, after training

# case: called before training, too
def ask():
    return input("name: ")
name = ask()
trainer = SFTTrainer(model)
trainer.train()
name = ask()
# decline, line 2: input() waits for a keyboard...

# case: called by nothing that can be seen
class Page:
    def asked(self):
        return input()
trainer = SFTTrainer(model)
trainer.train()
# decline, line 3: input() waits for a keyboard...
