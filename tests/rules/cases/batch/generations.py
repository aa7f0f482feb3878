# Generations of GRPO serve as many steps as in the notebook.

# case: once per accumulation cycle
from trl import GRPOConfig
args = GRPOConfig('o', num_generations=4, gradient_accumulation_steps=4, steps_per_generation=4)
# output
from trl import GRPOConfig
batch_per_rank, accumulation_per_rank = ddp.share_batch(8, 4, num_generations=4)  # nb2ddp: the notebook's batch, split
args = GRPOConfig('o', num_generations=4, gradient_accumulation_steps=accumulation_per_rank, steps_per_generation=accumulation_per_rank, per_device_train_batch_size=batch_per_rank)
# note, line 2: each rank samples its own completions: not the notebook's own figures, and an equivalent run where rewards keep nothing...

# case: once for two accumulation cycles
from trl import GRPOConfig
args = GRPOConfig('o', num_generations=4, gradient_accumulation_steps=4, steps_per_generation=8)
# output
from trl import GRPOConfig
batch_per_rank, accumulation_per_rank = ddp.share_batch(8, 4, num_generations=4)  # nb2ddp: the notebook's batch, split
args = GRPOConfig('o', num_generations=4, gradient_accumulation_steps=accumulation_per_rank, steps_per_generation=2 * accumulation_per_rank, per_device_train_batch_size=batch_per_rank)
# note, line 2: each rank samples its own completions: not the notebook's own figures, and an equivalent run where rewards keep nothing...

# case: generations that cannot be split
from trl import GRPOConfig
args = GRPOConfig('o', gradient_accumulation_steps=4, steps_per_generation=2)
# decline, line 2: steps_per_generation is split as gradient_accumulation_steps is, so it must be a multiple of it
# note, line 2: each rank samples its own completions: not the notebook's own figures, and an equivalent run where rewards keep nothing...
