# same: dropout
go(Trainer(bert(drop=0.1), args(), train_dataset=cls_rows(64)))
