# same: rows of micro-batches are divided where that evens out the ranks, and leave out padding
go(Trainer(llama(), args(per_device_train_batch_size=4, gradient_accumulation_steps=2), train_dataset=lm_rows(64, 8, 120), data_collator=pad))
