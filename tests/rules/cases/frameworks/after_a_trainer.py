# After a Trainer rank 0 is alone, and trains what reads none of torchrun's variables as the notebook does.

# first cell
from transformers import Trainer, TrainingArguments
trainer = Trainer(model=model, args=TrainingArguments("out"))
trainer.train()

# case: TensorFlow
from transformers import TFAutoModel
other = TFAutoModel.from_pretrained("m")
other.fit(rows)

# case: fastai
from fastai.vision.learner import vision_learner
vision_learner(dls, net).fine_tune(1)
# decline, line 2: this notebook trains with fastai...

# case: a step of a part of a trainer that trains by train()
from trl import PPOTrainer
ppo = PPOTrainer(model=model, args=args)
ppo.train()
ppo.lr_scheduler.step()

# case: a step of a trainer in an attribute
from trl import PPOTrainer
class Tuning:
    def __init__(self):
        self.ppo = PPOTrainer(model=model)
        self.ppo.step(queries)
Tuning()
# decline, line 5: this notebook trains with step() of TRL's older PPOTrainer...
