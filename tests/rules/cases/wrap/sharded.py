# With `--strategy fsdp` there is no wrapper: the Trainer's model is sharded already.

# case: a Trainer
# flags: --strategy fsdp
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
# output
from trl import SFTTrainer
trainer = SFTTrainer(model)
ddp.use_shards(trainer)  # nb2ddp: each rank trains with its share of the model
trainer.train()
ddp.check_replicas(trainer.model)
