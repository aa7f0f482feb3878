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

# case: a Trainer that generates, which is made and not trained
from trl import GRPOConfig, GRPOTrainer, RewardConfig, RewardTrainer
t = RewardTrainer(judge, args=RewardConfig(per_device_train_batch_size=8))
t.train()
later = GRPOTrainer(llm, args=GRPOConfig(per_device_train_batch_size=8), reward_funcs=judge)

# case: a classifier's Trainer beside one that generates
from transformers import Trainer, TrainingArguments
from trl import GRPOConfig, GRPOTrainer
t = Trainer(judge, TrainingArguments("out"))
t.train()
u = GRPOTrainer(llm, args=GRPOConfig("out"), reward_funcs=judge)
u.train()
# decline, line 4: beside one that generates, this Trainer's losses are another run's: train it in its own notebook
# note, line 5: each rank samples its own completions...

# case: a language model's Trainer beside one that generates
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
t = SFTTrainer(llm, args=SFTConfig("out"))
t.train()
u = GRPOTrainer(llm, args=GRPOConfig("out"), reward_funcs=judge)
u.train()
# output
from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer
batch_per_rank, accumulation_per_rank = ddp.share_batch(8, 1)  # nb2ddp: the notebook's batch, split
t = SFTTrainer(llm, args=SFTConfig("out", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank))
t.train()
batch_per_rank, accumulation_per_rank = ddp.share_batch(8, 1, num_generations=8)  # nb2ddp: the notebook's batch, split
u = GRPOTrainer(llm, args=GRPOConfig("out", per_device_train_batch_size=batch_per_rank, gradient_accumulation_steps=accumulation_per_rank), reward_funcs=judge)
u.train()
# note, line 3: beside one that generates, this Trainer's accuracies and uneven steps are another run's...
# note, line 4: each rank samples its own completions...
