# same: a loss keeps the largest so far, where rows are divided: it is not one of the parts'
class Own(Trainer):
    best = 0.0
    def compute_loss(self, model, inputs, *a, **k):
        loss = super().compute_loss(model, inputs, *a, **k)
        self.best = max(self.best, loss.item())
        return loss
    def log(self, logs, *a, **k):
        super().log({**logs, "best": self.best}, *a, **k)
rows = [{**row, "labels": number % 3} for number, row in enumerate(cls_rows(320))]
go(Own(bert(), args(per_device_train_batch_size=8, gradient_accumulation_steps=1, max_steps=40, learning_rate=1e-4), train_dataset=rows))
