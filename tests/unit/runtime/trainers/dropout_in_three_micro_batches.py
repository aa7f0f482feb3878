# same: two micro-batches are computed by a rank each, and the rows of the third are divided, with dropout in all
m = bert(BertForMaskedLM, drop=0.1)
go(Trainer(m, args(per_device_train_batch_size=4, gradient_accumulation_steps=3), train_dataset=lm_rows(96), data_collator=pad))
