# Arguments alone do not make a Trainer one that generates; after the last training no batch is divided.

# case: arguments of PPO beside a Trainer
from trl import PPOConfig, SFTConfig, SFTTrainer
kept = PPOConfig(per_device_train_batch_size=8)
t = SFTTrainer(llm, args=SFTConfig(per_device_train_batch_size=8))
t.train()

# case: arguments that are made after training
from trl import GRPOConfig, GRPOTrainer
t = GRPOTrainer(llm, args=GRPOConfig(per_device_train_batch_size=8))
t.train()
# %%
later = GRPOConfig(per_device_train_batch_size=4)
# output
from trl import GRPOConfig, GRPOTrainer
batch_per_rank, accumulation_per_rank = ddp.share_batch(8, 1, num_generations=8)  # nb2ddp: the notebook's batch, split
t = GRPOTrainer(llm, args=GRPOConfig(per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank))
t.train()
# %%
later = GRPOConfig(per_device_train_batch_size=4)
# note, cell 1, line 2: each rank samples its own completions...
