# Losses that compare the rows of a batch see the rows of all ranks, or are noted.

# case: a batch sampler, whose batches Accelerate splits
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
loss = losses.MultipleNegativesRankingLoss(model)
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=256, batch_sampler=BatchSamplers.NO_DUPLICATES, dataloader_drop_last=True)
# output
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
loss = losses.MultipleNegativesRankingLoss(model, gather_across_devices=world_size > 1)
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=256, batch_sampler=BatchSamplers.NO_DUPLICATES, dataloader_drop_last=True, accelerator_config={"split_batches": world_size > 1})

# case: in 16 bits
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
loss = losses.MultipleNegativesRankingLoss(model)
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=8, dataloader_drop_last=True, fp16=False, bf16=True)
# output
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
loss = losses.MultipleNegativesRankingLoss(model, gather_across_devices=world_size > 1)
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=8, dataloader_drop_last=True, fp16=False, bf16=True)
# note, line 3: each GPU computes a part of a batch, which rounds otherwise in 16 bits: losses are near the notebook's (by about 2e-4 of the loss), not equal

# case: an accelerator_config of the notebook
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
loss = losses.MultipleNegativesRankingLoss(model)
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=256, batch_sampler=BatchSamplers.NO_DUPLICATES, accelerator_config=config)
# output
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
loss = losses.MultipleNegativesRankingLoss(model, gather_across_devices=world_size > 1)
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=256, batch_sampler=BatchSamplers.NO_DUPLICATES, accelerator_config=config)
# note, line 3: on several GPUs Sentence Transformers drops an epoch's last batch if it is not full
# note, line 3: this batch sampler makes the batch of one rank: samples that it keeps apart can meet in the batch of all ranks. "split_batches": True in accelerator_config splits its batches over the ranks instead

# case: a scaled batch, which keeps its negatives
# flags: --batch scale
from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses
loss = losses.MultipleNegativesRankingLoss(model)
args = SentenceTransformerTrainingArguments("o", per_device_train_batch_size=256)

# last cell
trainer = SentenceTransformerTrainer(model, args=args, loss=loss)
trainer.train()
