# said: a slow average in a tensor moves by little, and no less for what it was
class Own(Trainer):
    shares = torch.zeros(3)
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        out = model(**inputs)
        self.shares.mul_(0.99).add_(0.01 * out.logits.detach().softmax(-1).mean(0))
        return (out.loss, out) if return_outputs else out.loss
    def log(self, logs, *a, **k):
        super().log({**logs, **{f"share {n}": share for n, share in enumerate(self.shares.tolist())}}, *a, **k)
go(Own(bert(), args(), train_dataset=cls_rows(64)))
