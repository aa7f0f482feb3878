# same: a callback changes what the collator does
class Cut:
    length = 12
    def __call__(self, rows): return {k: v[:, : self.length] for k, v in pad(rows).items()}
cut = Cut()
class Shorter(TrainerCallback):
    def on_step_end(self, a, s, c, **k): cut.length = max(5, cut.length - 1)
go(Trainer(llama(), args(), train_dataset=lm_rows(64), data_collator=cut, callbacks=[Shorter()]))
