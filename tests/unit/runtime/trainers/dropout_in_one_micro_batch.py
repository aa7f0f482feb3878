# same: rows of the only micro-batch are divided, with the dropout that one process has in them
go(Trainer(bert(BertForTokenClassification, labels=50, drop=0.2), args(per_device_train_batch_size=6, gradient_accumulation_steps=1, max_steps=8), train_dataset=lm_rows(48), data_collator=pad))
