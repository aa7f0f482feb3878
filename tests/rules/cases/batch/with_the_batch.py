# What goes with the batch: other options, figures that are read back, streams, loaders, generations.

# first cell
from trl import SFTConfig, SFTTrainer

# case: a scaled batch keeps the notebook's numbers
# flags: --batch scale --strategy fsdp
args = SFTConfig("o", per_device_train_batch_size=2)
# note, line 1: --batch scale: every rank takes the notebook's batch, so each step takes more data

# case: the notebook uses our name
# flags: --strategy fsdp
batch_per_rank = 1
args = SFTConfig("o")
# output
batch_per_rank = 1
ddp_batch_per_rank, accumulation_per_rank = ddp.share_batch(8, 1)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=ddp_batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: rows grouped by length, which the run groups as one process does
# flags: --strategy fsdp
args = SFTConfig("o", group_by_length=True)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(8, 1)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", group_by_length=True, per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: a stream, which each rank reads for itself at run time
# flags: --strategy fsdp
from datasets import load_dataset
d = load_dataset('x', streaming=True)
args = SFTConfig('o')
t = SFTTrainer(llm, args=args, train_dataset=d)
t.train()
# output
from datasets import load_dataset
d = load_dataset('x', streaming=True)
batch_per_rank, accumulation_per_rank = ddp.share_batch(8, 1)  # nb2ddp: the notebook's batch, split
args = SFTConfig('o', per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
t = SFTTrainer(llm, args=args, train_dataset=d)
t.train()

# case: the batch is read back
# flags: --strategy fsdp
args = SFTConfig("o", per_device_train_batch_size=2, gradient_accumulation_steps=4)
t = SFTTrainer(llm, args=args)
n = args.per_device_train_batch_size * t.args.gradient_accumulation_steps
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 4)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
t = SFTTrainer(llm, args=args)
n = 2 * 4

# case: a batch that is not a literal is read back
# flags: --strategy fsdp
args = SFTConfig("o", per_device_train_batch_size=B)
print(args.per_device_train_batch_size)
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(B, 1)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
print(args.per_device_train_batch_size)
# note, line 2: this reads one rank's share of the batch; write the number itself if the notebook's is meant

# case: a callback reads the batch back
# flags: --strategy fsdp
from transformers import TrainerCallback
class Count(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        self.seen += args.train_batch_size * args.gradient_accumulation_steps
    def on_the_side(self, numbers, args):
        return args.train_batch_size
args = SFTConfig("o", per_device_train_batch_size=2, gradient_accumulation_steps=4)
# output
from transformers import TrainerCallback
class Count(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        self.seen += 2 * 4
    def on_the_side(self, numbers, args):
        return args.train_batch_size
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 4)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)

# case: a callback reads back a batch that is not a literal
# flags: --strategy fsdp
from transformers import TrainerCallback
class Count(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        self.seen += args.train_batch_size
args = SFTConfig("o", per_device_train_batch_size=size)
# output
from transformers import TrainerCallback
class Count(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        self.seen += args.train_batch_size
batch_per_rank, accumulation_per_rank = ddp.share_batch(size, 1)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
# note, line 4: this reads one rank's share of the batch; write the number itself if the notebook's is meant

# case: the batch is read back, and multiplied by the ranks
# flags: --strategy fsdp
args = SFTConfig("o", per_device_train_batch_size=2, gradient_accumulation_steps=4)
n = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 4)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
n = args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size

# case: the processes that a library counts
# flags: --strategy fsdp
from accelerate import Accelerator
accelerator = Accelerator()
args = SFTConfig("o", per_device_train_batch_size=2, gradient_accumulation_steps=4)
n = args.per_device_train_batch_size * accelerator.num_processes * args.gradient_accumulation_steps
# output
from accelerate import Accelerator
accelerator = Accelerator()
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 4)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
n = 2 * accelerator.num_processes * 4

# case: the processes that a Trainer counts
# flags: --strategy fsdp
args = SFTConfig("o", per_device_train_batch_size=2, gradient_accumulation_steps=4)
t = SFTTrainer(llm, args=args)
n = math.ceil(1000 / args.per_device_train_batch_size) // t.accelerator.num_processes
# output
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 4)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
t = SFTTrainer(llm, args=args)
n = math.ceil(1000 / args.per_device_train_batch_size) // t.accelerator.num_processes

# case: a callback measures its loader in samples
# flags: --strategy fsdp
from transformers import TrainerCallback
class Count(TrainerCallback):
    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        print(len(train_dataloader) * args.per_device_train_batch_size)
args = SFTConfig("o", per_device_train_batch_size=2, gradient_accumulation_steps=4)
# output
from transformers import TrainerCallback
class Count(TrainerCallback):
    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        print(len(train_dataloader) * 2)
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 4)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
