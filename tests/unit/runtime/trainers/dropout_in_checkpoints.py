# same: a gradient checkpoint draws again in backward(), so the only micro-batch is not divided
go(Trainer(bert(drop=0.2), args(per_device_train_batch_size=6, gradient_accumulation_steps=1, gradient_checkpointing=True), train_dataset=cls_rows(48)))
