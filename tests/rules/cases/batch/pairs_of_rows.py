# KTO's KL term pairs the rows of a micro-batch: a rank needs two.

# case: the arguments' own batch
from trl import KTOConfig
args = KTOConfig('o', per_device_train_batch_size=2, gradient_accumulation_steps=2)
# output
from trl import KTOConfig
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 2, least=2)  # nb2ddp: the notebook's batch, split
args = KTOConfig('o', per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
# note, line 2: KTO estimates its KL term from the rows of one micro-batch, two or more: the run is the notebook's if the ranks divide the accumulation steps. If a micro-batch has to be split the losses are close to the notebook's, and if it leaves a rank a single row a step takes more rows; the run says how many

# case: arguments from a dict
from trl import KTOConfig
config = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2}
args = KTOConfig('o', **config)
# output
from trl import KTOConfig
batch_per_rank, accumulation_per_rank = ddp.share_batch(4, 2, least=2)  # nb2ddp: the notebook's batch, split
config = {"per_device_train_batch_size": batch_per_rank, "gradient_accumulation_steps": accumulation_per_rank}
args = KTOConfig('o', **config)
# note, line 2: KTO estimates its KL term from the rows of one micro-batch, two or more: the run is the notebook's if the ranks divide the accumulation steps. If a micro-batch has to be split the losses are close to the notebook's, and if it leaves a rank a single row a step takes more rows; the run says how many

# case: a loss without a KL term
from trl import KTOConfig
args = KTOConfig('o', per_device_train_batch_size=2, loss_type="apo_zero_unpaired")
# output
from trl import KTOConfig
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
args = KTOConfig('o', per_device_train_batch_size=batch_per_rank, loss_type="apo_zero_unpaired", gradient_accumulation_steps=accumulation_per_rank)
