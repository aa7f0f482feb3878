# same: the loss depends on how often it was computed
kept["seen"] = []
class Own(Trainer):
    n = 0
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        self.n += 1
        y = inputs.pop("labels"); o = model(**inputs)
        l = nn.functional.cross_entropy(o.logits, y) * (1 + 0.1 * (self.n % 5))
        if self.n % 5 == 0: kept["seen"].append(l.item())
        return (l, o) if return_outputs else l
go(Own(bert(), args(), train_dataset=cls_rows(64)))
