# A script has no %run_ddp: a cell that only shows the script is left out, and what reads `_ddp`.

# first cell
from trl import SFTTrainer
trainer = SFTTrainer(model)

# case: the script shown
%%run_ddp --show
trainer.train()
# output
# nb2ddp: %%run_ddp --show trains nothing: what stood below it is left out

# case: shown for other arguments, by the beginning of the option
# a look first
%%run_ddp --nproc 2 --sho --cpu
trainer.train()
# output
# a look first
# nb2ddp: %%run_ddp --nproc 2 --sho --cpu trains nothing: what stood below it is left out

# case: help
%%run_ddp -h
trainer.train()
# output
# nb2ddp: %%run_ddp -h trains nothing: what stood below it is left out

# case: what trains, or goes into the script, stays
%%run_ddp --free --nproc 2 --strategy ddp
x = 1
# %%
%%run_ddp --collect
y = 1

# case: the result shown
_ddp.log_history
# %%
# the curve
_ddp.plot("loss")
x = 1
# output
# nb2ddp: this reads `_ddp`, the result of %run_ddp, or what is made of it; a script has none
# %%
# the curve
# nb2ddp: this reads `_ddp`, the result of %run_ddp, or what is made of it; a script has none
x = 1

# case: the result on a line with more
x = 1; print(_ddp.ok); y = 2
# output
x = 1; pass; y = 2

# case: the result in a block
if _ddp.ok:
    print(_ddp.seconds)
for row in rows:
    print(row)
# output
# nb2ddp: this reads `_ddp`, the result of %run_ddp, or what is made of it; a script has none
for row in rows:
    print(row)

# case: what is made of the result
losses = [row["loss"] for row in _ddp.log_history]
def best():
    return min(losses)
# %%
print(best())
row = rows[0]
# output
# nb2ddp: this reads `_ddp`, the result of %run_ddp, or what is made of it; a script has none
# nb2ddp: this reads `_ddp`, the result of %run_ddp, or what is made of it; a script has none
# %%
# nb2ddp: this reads `_ddp`, the result of %run_ddp, or what is made of it; a script has none
row = rows[0]

# case: a name that something else binds too
losses = []
losses = _ddp.log_history
print(losses)
# output
losses = []
# nb2ddp: this reads `_ddp`, the result of %run_ddp, or what is made of it; a script has none
print(losses)

# case: a name of the notebook's own
_ddp = train()
_ddp.plot()

# case: training that depends on the result
if not _ddp.ok:
    trainer.train()
# decline, line 1: this reads `_ddp`, the result of %run_ddp, or what is made of it; a script has none, and this trains with it: take it out here

# last cell
trainer.train()
