# Where steps are to be shared out by length, what a step takes is told when that is decided.

# first cell
from transformers import TrainingArguments

# case: by length
# flags: --batches dealt
args = TrainingArguments("out", per_device_train_batch_size=2, gradient_accumulation_steps=4)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 4, by_length=True)  # nb2ddp: the notebook's batch, split
args = TrainingArguments("out", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: the Trainer wraps for itself, and deals nothing
# flags: --batches dealt --wrap trainer
args = TrainingArguments("out", per_device_train_batch_size=2, gradient_accumulation_steps=4)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 4)  # nb2ddp: the notebook's batch, split
args = TrainingArguments("out", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: without a batch
# flags: --batches dealt
args = print
