# same: a callback ends epochs, a scheduler counts the loader's batches
class Own(Trainer):
    def create_scheduler(self, num_training_steps, optimizer=None):
        n = len(self.get_train_dataloader())
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda s: 1 / (1 + s / n))
        return self.lr_scheduler
class Stop(TrainerCallback):
    def on_step_end(self, a, s, c, **k):
        if s.global_step % 2 == 0: c.should_epoch_stop = True
go(Own(llama(), args(max_steps=-1, num_train_epochs=3), train_dataset=lm_rows(64), data_collator=pad, callbacks=[Stop()]))
