# After the last statement that needs every rank, the other ranks end and rank 0 goes on.

# first cell
from trl import SFTTrainer
trainer = SFTTrainer(model)

# case: training that never runs does not count
trainer.train()
if False:
    trainer.train()
# output
trainer.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
if False:
    trainer.train()

# case: the rest of the line runs on rank 0
trainer.train(); model.save_pretrained("lora")  # done
# output
trainer.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
model.save_pretrained("lora")  # done

# case: the last collective call is in another cell
trainer.train()
# %%
x = 1
# %%
trainer.evaluate()
# %%
model.push_to_hub('m')
# output
trainer.train()
# %%
x = 1
# %%
trainer.evaluate()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# %%
model.push_to_hub('m')

# case: a list of what trains later
from functools import partial
def run(trainer, steps):
    trainer.train()
jobs = [partial(run, trainer, steps) for steps in (1, 2)]
for job in jobs:
    job(trainer)
# output
from functools import partial
def run(trainer, steps):
    trainer.train()
jobs = [partial(run, trainer, steps) for steps in (1, 2)]
for job in jobs:
    job(trainer)
ddp.finish()  # nb2ddp: only rank 0 runs what follows

# case: a generator that trains runs where it is gone through
def rounds(trainer):
    for steps in (1, 2):
        trainer.train()
        yield steps
training = rounds(trainer)
print("made")
for steps in training:
    print(steps)
print("trained")
# output
def rounds(trainer):
    for steps in (1, 2):
        trainer.train()
        yield steps
training = rounds(trainer)
print("made")
for steps in training:
    print(steps)
ddp.finish()  # nb2ddp: only rank 0 runs what follows
print("trained")

# case: a further Trainer whose class a table gives
trainer.train()
for Kind in (SFTTrainer, DPOTrainer):
    other = Kind(model=model, train_dataset=data)
    other.train()
# output
trainer.train()
for Kind in (SFTTrainer, DPOTrainer):
    other = Kind(model=model, train_dataset=data)
    other.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows

# case: a Trainer of a table before another
other = {"sft": SFTTrainer}["sft"](model=model, train_dataset=data)
other.train()
trainer.train()
# output
other = {"sft": SFTTrainer}["sft"](model=model, train_dataset=data)
other.train()
trainer.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows

# case: a function of the notebook's and a class of its own
def load(train_dataset):
    return train_dataset
class Own:
    def __init__(self, train_dataset):
        self.data = train_dataset
Pair = namedtuple("Pair", "train_dataset eval_dataset")
both = Pair(train_dataset=data, eval_dataset=data)
trainer.train()
Own(train_dataset=load(train_dataset=data))
# output
def load(train_dataset):
    return train_dataset
class Own:
    def __init__(self, train_dataset):
        self.data = train_dataset
Pair = namedtuple("Pair", "train_dataset eval_dataset")
both = Pair(train_dataset=data, eval_dataset=data)
trainer.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
Own(train_dataset=load(train_dataset=data))
