# same: the loss is a sum over the step's tokens, and the last steps' rows differ in length
go(Trainer(llama(), args(), train_dataset=lm_rows(64), data_collator=pad))
