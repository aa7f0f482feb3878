# A loader of the notebook's own gives every rank all the data, unless Accelerate divides it.

# first cell
from torch.utils.data import DataLoader
from transformers import Trainer
from trl import SFTConfig

# case: all the data
# flags: --strategy fsdp
class Mine(Trainer):
    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, batch_size=2)
args = SFTConfig("o", per_device_train_batch_size=2)
t = Mine(llm, args)
t.train()
# decline, line 2: this DataLoader gives every rank all the data, because the Trainer splits only those that it makes; override _get_train_sampler() instead, or return self.accelerator.prepare(DataLoader(...))

# case: divided by Accelerate
# flags: --strategy fsdp
class Mine(Trainer):
    def get_train_dataloader(self):
        return self.accelerator.prepare(DataLoader(self.train_dataset, batch_size=2))
args = SFTConfig("o", per_device_train_batch_size=2)
t = Mine(llm, args)
t.train()
# output
class Mine(Trainer):
    def get_train_dataloader(self):
        return self.accelerator.prepare(DataLoader(self.train_dataset, batch_size=2))
batch_per_rank, accumulation_per_rank = ddp.share_batch(2, 1)  # nb2ddp: the notebook's batch, split
args = SFTConfig("o", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank)
t = Mine(llm, args)
t.train()
