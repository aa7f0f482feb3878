# said: a training step keeps a moving average
class Own(Trainer):
    ema = 0.0
    def training_step(self, model, inputs, *a, **k):
        l = super().training_step(model, inputs, *a, **k)
        self.ema = 0.9 * self.ema + 0.1 * l.item(); kept["ema"] = self.ema
        return l
go(Own(bert(), args(), train_dataset=cls_rows(64)))
