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
