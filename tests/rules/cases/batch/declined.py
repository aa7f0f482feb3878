# A batch that cannot be seen, or cannot be split, is declined at its line.

# first cell
from trl import SFTConfig, SFTTrainer

# case: GRPO's arguments from a file
# flags: --strategy fsdp
from trl import GRPOConfig
args = GRPOConfig(**yaml.safe_load(open("c")))
# decline, line 2: nb2ddp cannot tell which batch these training arguments get; write per_device_train_batch_size here

# case: a partial whose other arguments are not in sight
# flags: --strategy fsdp
import functools
make = functools.partial(SFTConfig, per_device_train_batch_size=8, **rest)
args = make("o")
# decline, line 2: nb2ddp cannot tell which batch these training arguments get; write gradient_accumulation_steps here

# case: arguments from a file that go to a loop of the notebook's own
# flags: --strategy fsdp
args = SFTConfig(**yaml.safe_load(open("c")))
for x in DataLoader(data, batch_size=args.per_device_train_batch_size):
    model(x).sum().backward()
# decline, line 1: nb2ddp cannot tell which batch ...
# note, line 2: this reads one rank's share of the batch; write the number itself if the notebook's is meant

# case: a copy of a dict that has its share
# flags: --strategy fsdp
base = dict(per_device_train_batch_size=4, gradient_accumulation_steps=2)
t = SFTTrainer(model, args=SFTConfig("a", **base))
t = SFTTrainer(model, args=SFTConfig(**{**base, "output_dir": "b"}))
# decline, line 3: nb2ddp cannot tell which batch ...

# case: a copy of arguments that have their share
# flags: --strategy fsdp
t = SFTTrainer(model, args=SFTConfig(**settings))
t = SFTTrainer(model, args=SFTConfig(**{**t.args.to_dict(), "output_dir": "b"}))
# decline, line 1: nb2ddp cannot tell which batch ...
# decline, line 2: nb2ddp cannot tell which batch ...

# case: a batch set later
# flags: --strategy fsdp
args = SFTConfig("o", per_device_train_batch_size=2)
args.per_device_train_batch_size = 4
# decline, line 2: per_device_train_batch_size is set after the training arguments are made; pass it when they are made

# case: accumulation steps set later
# flags: --strategy fsdp
args = SFTConfig("o")
args.gradient_accumulation_steps = 4
# decline, line 2: gradient_accumulation_steps is set after ...

# case: set later through the trainer
# flags: --strategy fsdp
t = SFTTrainer(model, args=SFTConfig("o"))
t.args.gradient_accumulation_steps = 4
# decline, line 2: gradient_accumulation_steps is set after ...

# case: made in a lambda
# flags: --strategy fsdp
make = lambda: SFTConfig("o", per_device_train_batch_size=2)
# decline, line 1: training arguments made inside an expression cannot be followed; assign them to a variable first

# case: no arguments at all
# flags: --strategy fsdp
t = SFTTrainer(model)
# decline, line 1: this Trainer has no training arguments, so its batch cannot be split; pass it args=

# case: arguments of an unknown kind
# flags: --strategy fsdp
t = SFTTrainer(model, args=read())
# decline, line 1: nb2ddp cannot tell how this Trainer's arguments are made; make them in a cell of the notebook
