# unsloth_train(trainer) becomes trainer.train().

# first cell
from unsloth import unsloth_train
from trl import SFTTrainer
t = SFTTrainer(model)

# case: plain
unsloth_train(t)
# output
t.train()

# case: its result kept
stats = unsloth_train( t )  # go
# output
stats = t.train()  # go

# case: over several lines
stats = unsloth_train(
    t,
)
# output
stats = t.train()

# case: the trainer by name
unsloth_train(trainer = t)
# output
t.train()

# case: an argument more
unsloth_train(t, resume_from_checkpoint = True)
# output
t.train(resume_from_checkpoint = True)

# case: the trainer last
unsloth_train(resume_from_checkpoint=True, trainer=t)
# output
t.train(resume_from_checkpoint=True)

# case: one of two trainers
unsloth_train(a if big else b)
# output
(a if big else b).train()

# case: in a function
def go():
  return unsloth_train(t)
# output
def go():
  return t.train()
