# IPython keeps the values that cells have shown, and a script does not.

# case: the last value
model.summary()
# %%
print(_)
# decline, cell 2, line 1: `_` is what IPython keeps of cells that have run...

# case: by number
rows = Out[3]
# decline, line 1: `Out` is what IPython keeps of cells that have run...

# case: a name of the notebook's own
for _ in range(3):
    step()
print(_)

# last cell
trainer = SFTTrainer(model)
trainer.train()
