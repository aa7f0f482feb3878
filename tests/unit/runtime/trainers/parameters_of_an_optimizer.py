# said: an optimizer of the Trainer's own is all that holds the parameters that it trains in each micro-batch
class Own(Trainer):
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.scales = torch.optim.SGD([nn.Parameter(torch.ones(3))], 0.5, momentum=0.9)
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        logits, scale = model(**inputs).logits, self.scales.param_groups[0]["params"][0]
        self.scales.zero_grad()
        nn.functional.cross_entropy(logits.detach() * scale, inputs["labels"]).backward()
        self.scales.step()
        return nn.functional.cross_entropy(logits * scale.detach(), inputs["labels"])
t = Own(bert(), args(), train_dataset=cls_rows(48))
go(t)
note(scales=t.scales.param_groups[0]["params"][0].tolist())
