# The model is wrapped when its Trainer trains, and the ranks are compared after it.

# first cell
from trl import DPOTrainer, SFTConfig, SFTTrainer
t = SFTTrainer(llm)

# case: between the comment and the training
# go
stats = t.train()  # slow
x = 1
# output
# go
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
stats = t.train()  # slow
ddp.check_replicas(ddp_model)
x = 1

# case: in a with block
with profiler:
    t.train()
# output
with profiler:
    ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
    t.train()
    ddp.check_replicas(ddp_model)

# case: in a function
def go():
  t.train()
go()
# output
def go():
  ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
  t.train()
  ddp.check_replicas(ddp_model)
go()

# case: in a try
try:
    t.train()
except KeyboardInterrupt:
    pass
# output
try:
    ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
    t.train()
    ddp.check_replicas(ddp_model)
except KeyboardInterrupt:
    pass

# case: in a loop over seeds
for seed in seeds:
    t.train()
# output
for seed in seeds:
    ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
    t.train()
    ddp.check_replicas(ddp_model)

# case: two Trainers
t.train()
d = DPOTrainer(llm)
d.train()
# output
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
d = DPOTrainer(llm)
ddp_model = ddp.wrap_trainer(d)  # nb2ddp: the ranks divide each step, and sum the gradients
d.train()
ddp.check_replicas(ddp_model)

# case: the rest of the line comes after the comparison
t.train(); llm.save_pretrained("a")
# output
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
llm.save_pretrained("a")

# case: a Trainer that evaluates first
t.evaluate()
t.train()
t.evaluate()
# output
ddp.prepare_trainer(t)  # nb2ddp: the ranks divide its batches
t.evaluate()
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
t.evaluate()

# case: the notebook uses our names
ddp_model = ddp = 1
t.train()
# output
ddp_model = ddp = 1
ddp_ddp_model = ddp_ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp_ddp.check_replicas(ddp_ddp_model)

# case: a function that returns what train() returns
def go(resume):
    return t.train(resume_from_checkpoint=resume)
go(True)
# output
def go(resume):
    ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
    return ddp.check_replicas(ddp_model, t.train(resume_from_checkpoint=resume))
go(True)
