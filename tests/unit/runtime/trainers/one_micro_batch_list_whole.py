# same: the largest logit is not put together, so no rows are divided; a list gets 1.0 beside a counter
class Listing(Trainer):
    def compute_loss(self, model, inputs, *a, **k):
        self.calls += 1
        self.marks.append(1.0)
        loss, out = super().compute_loss(model, inputs, *a, **{**k, "return_outputs": True})
        self.largest = out.logits.abs().max().item()
        return loss

    def log(self, logs, *a, **k):
        super().log({**logs, "marks": sum(self.marks), "largest": self.largest}, *a, **k)
        self.marks.clear()


one = args(gradient_accumulation_steps=1, per_device_train_batch_size=4)
t = Listing(bert(), one, train_dataset=cls_rows(48))
t.marks, t.calls = [], 0
go(t)
note(calls=t.calls)
