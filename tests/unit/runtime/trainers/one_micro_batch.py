# same: rows of a micro-batch are divided
go(Trainer(llama(), args(per_device_train_batch_size=8, gradient_accumulation_steps=1), train_dataset=lm_rows(64), data_collator=pad))
