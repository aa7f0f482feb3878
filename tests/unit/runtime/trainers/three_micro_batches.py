# same: two in turns, rows of the third are divided
go(Trainer(llama(), args(per_device_train_batch_size=4, gradient_accumulation_steps=3), train_dataset=lm_rows(64), data_collator=pad))
