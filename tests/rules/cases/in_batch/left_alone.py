# Losses whose samples are not compared, and batches that stay whole, are left alone.

# case: a loss of each sample by itself
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
loss = losses.CosineSimilarityLoss(model)
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=256)

# case: ranks divide the accumulation steps
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
loss = losses.MultipleNegativesRankingLoss(model)
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=256, gradient_accumulation_steps=4)

# last cell
trainer = SentenceTransformerTrainer(model, args=args, loss=loss)
trainer.train()
