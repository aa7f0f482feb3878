# What trains nothing is left alone.

# case: a model put into training mode
llm.train()

# case: a Trainer that never trains
from trl import SFTTrainer
t = SFTTrainer(llm)

# case: training that never runs
from trl import SFTTrainer
t = SFTTrainer(llm)
if False:
    t.train()

# case: a class of the notebook
class Trainer:
    pass
t = Trainer()
t.train()
