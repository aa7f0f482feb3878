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

# case: a function that returns something
def count(rows):
    return len(rows)
count([1])
# output
def count(rows):
    return len(rows)
ddp.show(count([1]))
