# The batch of the training arguments is split over the ranks; layout and comments stay.

# first cell
from trl import SFTConfig, SFTTrainer

# case: batch and accumulation steps
# flags: --strategy fsdp
args = SFTConfig("o", per_device_train_batch_size=2, gradient_accumulation_steps=4)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 4)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: the batch alone
# flags: --strategy fsdp
args = SFTConfig("o", per_device_train_batch_size=2)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: names and expressions
# flags: --strategy fsdp
args = SFTConfig("o", per_device_train_batch_size=B, gradient_accumulation_steps=64 // B)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(B, 64 // B)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: a conditional expression
# flags: --strategy fsdp
args = SFTConfig("o", per_device_train_batch_size=2 if big else 1)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2 if big else 1, 1)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: neither is given: the defaults of Transformers
# flags: --strategy fsdp
args = SFTConfig("o")
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(8, 1)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: with comments
# flags: --strategy fsdp
args = SFTConfig(
        per_device_train_batch_size = 2, # small
        gradient_accumulation_steps = 4,  # many
        output_dir = "o",
    )
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 4)  # nb2ddp: the notebook's batch, split
args = SFTConfig(
        per_device_train_batch_size = batch_per_rank, # small
        gradient_accumulation_steps = accumulation_per_rank,  # many
        output_dir = "o",
    )

# case: neither is given, one argument per line
# flags: --strategy fsdp
# the recipe
args = SFTConfig(
    output_dir = "o",
    max_steps = 5 # short
)
# output
# the recipe
batch_per_rank, accumulation_per_rank = ddp.share_batch(8, 1)  # nb2ddp: the notebook's batch, split
args = SFTConfig(
    output_dir = "o",
    max_steps = 5, # short
    per_device_train_batch_size = batch_per_rank,
    gradient_accumulation_steps = accumulation_per_rank,
)

# case: inside the trainer
# flags: --strategy fsdp
trainer = SFTTrainer(
    model = model,
    args = SFTConfig(
        per_device_train_batch_size = 2,
    ),
)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
trainer = SFTTrainer(
    model = model,
    args = SFTConfig(
        per_device_train_batch_size = batch_per_rank,
        gradient_accumulation_steps = accumulation_per_rank,
    ),
)

# case: a dict, one entry per line
# flags: --strategy fsdp
kw = {
    "output_dir": "o",
    "per_device_train_batch_size": 2,  # small
}
args = SFTConfig(**kw)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
kw = {
    "gradient_accumulation_steps": accumulation_per_rank,
    "output_dir": "o",
    "per_device_train_batch_size": batch_per_rank,  # small
}
args = SFTConfig(**kw)
