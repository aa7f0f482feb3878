# same: figures that training in one micro-batch and evaluation carry on, each of which depends on the ones before
class Figures(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        loss, out = super().compute_loss(model, inputs, return_outputs=True, **k)
        self.calls += 1
        self.ema, self.sign = 0.9 * self.ema + 0.1 * loss.item(), -self.sign
        self.mean += (loss.item() - self.mean) / self.calls
        return (loss, out) if return_outputs else loss

    def log(self, logs, *a, **k):
        super().log({**logs, "ema": self.ema, "sign": self.sign, "mean": self.mean, "calls": self.calls}, *a, **k)


one = args(gradient_accumulation_steps=1, per_device_train_batch_size=4, max_steps=6, eval_strategy="steps", eval_steps=2, learning_rate=0.02)
t = Figures(bert(), one, train_dataset=cls_rows(48), eval_dataset=cls_rows(22))
t.ema, t.mean, t.sign, t.calls = 1.0, 0.0, 1, 0
go(t)
note(figures=[t.ema, t.mean, t.sign, t.calls])
