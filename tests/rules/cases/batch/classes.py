# Training arguments are known by their class.

# case: another name
# flags: --strategy fsdp
from trl import SFTConfig as C
args = C(per_device_train_batch_size=2)
# output
from trl import SFTConfig as C
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
args = C(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: through the module
# flags: --strategy fsdp
import trl as rl
args = rl.SFTConfig(per_device_train_batch_size=2)
# output
import trl as rl
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
args = rl.SFTConfig(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: a star import
# flags: --strategy fsdp
from trl import *
args = SFTConfig(per_device_train_batch_size=2)
# output
from trl import *
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
args = SFTConfig(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: Transformers' arguments
# flags: --strategy fsdp
import transformers
args = transformers.TrainingArguments(per_device_train_batch_size=2)
# output
import transformers
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
args = transformers.TrainingArguments(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: Unsloth's arguments
# flags: --strategy fsdp
from unsloth import UnslothTrainingArguments as C
args = C(per_device_train_batch_size=2)
# output
from unsloth import UnslothTrainingArguments as C
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
args = C(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: a subclass
# flags: --strategy fsdp
import trl
class C(trl.SFTConfig):
    pass
args = C(per_device_train_batch_size=2)
# output
import trl
class C(trl.SFTConfig):
    pass
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
args = C(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
