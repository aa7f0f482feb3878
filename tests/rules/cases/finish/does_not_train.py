# A notebook that does not train is declined.

# case: inference
model.generate(**inputs)
# decline: nb2ddp sees no training here that it could convert: no Trainer that it knows, no loop with backward(), and no fit() of a model; training in modules that it imports is not in sight

# case: a model put into training mode
model.train()
# decline: nb2ddp sees no training here that it could convert: ...

# case: a trainer that never trains
from trl import SFTTrainer
trainer = SFTTrainer(model)
# decline, line 2: nb2ddp sees no training here that it could convert: this SFTTrainer is made, and no call of its train() is in sight

# case: training in code that never runs
from trl import SFTTrainer
trainer = SFTTrainer(model)
if False:
    trainer.train()
# decline, line 2: nb2ddp sees no training here...

# case: a function that is never called
from trl import SFTTrainer
trainer = SFTTrainer(model)
def later():
    trainer.train()
# decline, line 2: nb2ddp cannot follow the training of this SFTTrainer: its train() stands in a function that nb2ddp sees no call of; ...

# case: a class of another kind
class Trainer:
    pass
trainer = Trainer()
trainer.train()
# decline, line 4: nb2ddp does not see what `trainer.train()` trains with...
