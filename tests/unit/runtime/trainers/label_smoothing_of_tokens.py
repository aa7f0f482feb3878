# same: a mean over labels that are unlike in number, divided
go(Trainer(bert(BertForTokenClassification), args(per_device_train_batch_size=8, gradient_accumulation_steps=1, label_smoothing_factor=0.1), train_dataset=cls_rows(64, True)))
