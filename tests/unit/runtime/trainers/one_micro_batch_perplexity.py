# same: a fresh head gives all rows one loss, and what is made of it looks like a mean until it has learnt
class Figures(Trainer):
    def compute_loss(self, model, inputs, *a, **k):
        loss = super().compute_loss(model, inputs, *a, **k)
        self.perplexity = loss.detach().exp().item()
        return loss

    def log(self, logs, *a, **k):
        super().log({**logs, "perplexity": self.perplexity}, *a, **k)


one = args(gradient_accumulation_steps=1, per_device_train_batch_size=8, max_steps=10, learning_rate=0.05)
go(Figures(bert(), one, train_dataset=cls_rows(96)))
