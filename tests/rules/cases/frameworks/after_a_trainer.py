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
