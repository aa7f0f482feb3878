# same: rows are divided; a list gets 1.0 in each step, which is what a counter beside it has become in the first alone
class Listing(Trainer):
    def compute_loss(self, model, inputs, *a, **k):
        self.calls += 1
        self.marks.append(1.0)
        return super().compute_loss(model, inputs, *a, **k)

    def log(self, logs, *a, **k):
        super().log({**logs, "marks": sum(self.marks)}, *a, **k)
        self.marks.clear()


one = args(gradient_accumulation_steps=1, per_device_train_batch_size=4)
t = Listing(llama(), one, train_dataset=lm_rows(48), data_collator=pad)
t.marks, t.calls = [], 0
go(t)
note(calls=t.calls)
