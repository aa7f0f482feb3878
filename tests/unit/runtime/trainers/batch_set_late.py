# same: the batch is set after the arguments are made
a = args()
a.set_training(learning_rate=1e-2, batch_size=4, num_epochs=1, gradient_accumulation_steps=2)
a.max_steps = 6
go(Trainer(llama(), a, train_dataset=lm_rows(64), data_collator=pad))
