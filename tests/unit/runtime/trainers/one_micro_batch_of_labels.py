# same: a mean over rows, divided
go(Trainer(bert(), args(per_device_train_batch_size=8, gradient_accumulation_steps=1), train_dataset=cls_rows(64)))
