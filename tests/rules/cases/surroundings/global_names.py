# Code that goes through all global names meets those of the script, too.

# case: what is saved with a checkpoint
config_keys = [k for k, v in globals().items() if not k.startswith("_") and isinstance(v, (int, float, bool, str))]
# note, line 1: this goes through all global names: the script's own are among them, `world_size` for example

# case: a loop over names
for name in globals():
    print(name)
# note, line 1: this goes through all ...

# case: a sorted list of names
names = sorted(globals())
# note, line 1: this goes through all ...

# case: one name
value = globals()["x"]
known = "x" in globals()

# case: a function of the notebook's own
def globals():
    return {}
names = sorted(globals())
