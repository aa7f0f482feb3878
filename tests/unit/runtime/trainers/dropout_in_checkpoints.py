# near: what a gradient checkpoint drops out is drawn by each rank for its rows
go(Trainer(bert(drop=0.2), args(per_device_train_batch_size=6, gradient_accumulation_steps=1, gradient_checkpointing=True), train_dataset=cls_rows(48)))
