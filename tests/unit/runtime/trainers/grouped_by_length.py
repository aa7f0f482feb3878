# same: a sampler that groups rows by length
go(Trainer(llama(), args(train_sampling_strategy='group_by_length'), train_dataset=lm_rows(64), data_collator=pad))
