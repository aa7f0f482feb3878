# same: random numbers are drawn from the third step on
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        o = model(**inputs)
        l = nn.functional.cross_entropy(o.logits, inputs["labels"], reduction="none")
        if self.state.global_step >= 3:
            l = l * (1 + 0.1 * torch.rand(l.shape))
        return (l.mean(), o) if return_outputs else l.mean()
go(Own(bert(), args(), train_dataset=cls_rows(64)))
