# Where a notebook asks for ranks, it is told of one process; what rank 0 alone was to do, rank 0 does.

# first cell
import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, Trainer, TrainerCallback, TrainingArguments
from lib import export, get_rank, is_main_process
trainer = Trainer(model, TrainingArguments("o"), train_dataset=data)

# last cell
trainer.train()

# case: questions of torch.distributed, and of a module's functions
rank = dist.get_rank() if dist.is_initialized() else -1
rows = rows[dist.get_rank()::dist.get_world_size()]
seed = 42 + get_rank()
# output
rank = 0 if False else -1
rows = rows[0::1]
seed = 42 + 0

# case: what a group alone would do never runs, so no rank waits for another there
if dist.is_available() and dist.is_initialized():
    export(model)
# output
if dist.is_available() and False:
    export(model)

# case: a sampler of one process
from torch.utils.data.distributed import DistributedSampler
sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=7)

# case: a group that the notebook joins
dist.init_process_group("gloo", rank=0, world_size=1)
if dist.is_initialized():
    dist.barrier()
    mean = torch.zeros(1)
# output
if True:
    ddp.from_all_ranks(None)
    mean = torch.zeros(1)

# case: what the group exchanges is declined, before training ends
dist.init_process_group("gloo", rank=0, world_size=1)
dist.all_reduce(total)
# decline, line 2: `dist.all_reduce(total)` exchanges values between processes of the notebook's own; ...

# case: a helper that exchanges values only below a test for a group
def mean_of(value):
    if dist.get_world_size() < 2:
        return value
    dist.all_reduce(value)
    return value
# output
def mean_of(value):
    if 1 < 2:
        return value
    dist.all_reduce(value)
    return value

# case: an evaluation for which all ranks are needed
if trainer.is_world_process_zero():
    trainer.evaluate()
model.save_pretrained("out", is_main_process=trainer.args.should_save)
# output
if True:
    trainer.evaluate()
model.save_pretrained("out", is_main_process=True)

# case: figures that an own evaluation logs
class Own(Trainer):
    def evaluate(self, *args, **kwargs):
        if self.args.should_log:
            self.log({"x": 1})
# output
class Own(Trainer):
    def evaluate(self, *args, **kwargs):
        if True:
            self.log({"x": 1})

# case: a callback that stops, and one that exports
class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.is_world_process_zero and state.global_step > 5:
            control.should_training_stop = True
    def on_save(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            export(kwargs["model"], args.output_dir)
# output
class Stop(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if True and state.global_step > 5:
            control.should_training_stop = True
    def on_save(self, args, state, control, **kwargs):
        with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 does this, as in the notebook
            if is_main:
                if True:
                    export(kwargs["model"], args.output_dir)

# case: below a name for the test
is_main = is_main_process()
if is_main:
    export(rows, "rows")
if is_main:
    print("started")
if is_main:
    rows = export(rows, "rows")
# output
is_main = True
with ddp.main_process_only() as ddp_is_main:  # nb2ddp: only rank 0 does this, as in the notebook
    if ddp_is_main:
        if is_main:
            export(rows, "rows")
if is_main:
    print("started")
if is_main:
    rows = export(rows, "rows")

# case: an Accelerator of the notebook's own, which sees one process, and attributes of its classes
from accelerate import Accelerator
accelerator = Accelerator()
class Run:
    is_main_process = True
if accelerator.is_main_process and Run().is_main_process:
    export(rows, "rows")

# case: where a Trainer generates, ranks are its own
import os
from trl import GRPOTrainer
grpo = GRPOTrainer(model, reward_funcs=f)
device = f"cuda:{dist.get_rank()}"
seed = 42 + int(os.environ["RANK"])
if grpo.is_world_process_zero():
    print("started")
grpo.train()
# decline, line 4: `dist.get_rank()` asks for ranks, ...
# decline, line 5: `os.environ["RANK"]` asks for ranks, ...
