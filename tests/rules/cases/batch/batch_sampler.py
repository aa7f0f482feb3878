# A batch sampler makes the batch of all ranks, where Accelerate splits it.

# case: samples that it keeps apart are negatives of one another
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
loss = losses.MultipleNegativesRankingLoss(model)
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=256, batch_sampler=BatchSamplers.NO_DUPLICATES)
# output
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
loss = losses.MultipleNegativesRankingLoss(model)
batch_per_rank, accumulation_per_rank = ddp.share_batch(256, 1)  # nb2ddp: the notebook's batch, split
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=batch_per_rank * world_size, batch_sampler=BatchSamplers.NO_DUPLICATES, gradient_accumulation_steps=accumulation_per_rank)

# case: the notebook says how its batches are split
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
loss = losses.MultipleNegativesRankingLoss(model)
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=256, batch_sampler=BatchSamplers.NO_DUPLICATES, accelerator_config=config)

# last cell
trainer = SentenceTransformerTrainer(model, args=args, loss=loss)
trainer.train()
