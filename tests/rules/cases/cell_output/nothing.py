# What returns None is not shown.

# case: functions of the notebook, and of libraries
import json
def say(text):
    print(text)
say("a")
# %%
json.dump({}, file)
# %%
file.close()

# case: methods of the notebook's classes
class Runner:
    def train(self, steps):
        return {"steps": steps}
    def save(self):
        pass
runner = Runner()
runner.train(2)
# %%
runner.save()
# output
class Runner:
    def train(self, steps):
        return {"steps": steps}
    def save(self):
        pass
runner = Runner()
ddp.show(runner.train(2))
# %%
runner.save()

# case: a command of the shell, by a name of it
from IPython import get_ipython
shell = get_ipython()
shell.system("ls")

# case: functions that return something, also by names of others that do not
def count(rows):
    return len(rows)
def evaluate(model):
    return model.loss
count([1])
# %%
evaluate(net)
# output
def count(rows):
    return len(rows)
def evaluate(model):
    return model.loss
ddp.show(count([1]))
# %%
ddp.show(evaluate(net))

# case: the formats of figures
import matplotlib_inline.backend_inline as inline
inline.set_matplotlib_formats("svg")
# output
import matplotlib_inline.backend_inline as inline
ddp.show(inline.set_matplotlib_formats("svg"))
