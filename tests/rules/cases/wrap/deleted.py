# A model that is deleted is not kept by its wrapper.

# first cell
from transformers import AutoModel
from trl import SFTTrainer
llm = AutoModel.from_pretrained("m")
t = SFTTrainer(llm)

# case: the model
t.train()
del llm
# output
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
del ddp_model  # nb2ddp: it holds the model too, which is to be freed
del llm

# case: the Trainer and the model
t.train()
del t, llm
# output
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
del ddp_model  # nb2ddp: it holds the model too, which is to be freed
del t, llm

# case: the Trainer, in parentheses
t.train()
del (t)
# output
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
del ddp_model  # nb2ddp: it holds the model too, which is to be freed
del (t)

# case: the model, under an if
t.train()
x = 1
if x:
    del llm, x
# output
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
del ddp_model  # nb2ddp: it holds the model too, which is to be freed
x = 1
if x:
    del llm, x

# case: another name, which does not matter
t.train()
del other
# output
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
del other

# case: an attribute, which does not matter
t.train()
del t.x
# output
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
del t.x

# case: a local name, which does not matter
t.train()
def f(t):
    del t
# output
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
def f(t):
    del t

# case: the model of the round before, at the head of a loop
for fold in range(2):
    if fold:
        del own
    own = AutoModel.from_pretrained("m")
    trainer = SFTTrainer(own)
    trainer.train()
# output
for fold in range(2):
    if fold:
        del own
    own = AutoModel.from_pretrained("m")
    trainer = SFTTrainer(own)
    ddp_model = ddp.wrap_trainer(trainer)  # nb2ddp: the ranks divide each step, and sum the gradients
    trainer.train()
    ddp.check_replicas(ddp_model)
    del ddp_model  # nb2ddp: it holds the model too, which is to be freed
