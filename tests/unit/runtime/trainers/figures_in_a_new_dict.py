# same: what compute_loss keeps in a dict that it makes anew is no sum over rows: parts of a micro-batch are tried in vain
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        l, o = super().compute_loss(model, inputs, return_outputs=True, **k)
        bias = model.classifier.bias
        self.last = {"std": (o.logits * bias).std().item(), "largest": (bias.abs().sum() * o.logits.softmax(-1).mean(0).max()).item()}
        return (l, o) if return_outputs else l
    def log(self, logs, *given, **k):
        super().log({**logs, **getattr(self, "last", {})}, *given, **k)
go(Trainer(bert(), args(max_steps=3), train_dataset=cls_rows(32)))
model = bert()
nn.init.zeros_(model.classifier.bias)
go(Own(model, args(gradient_accumulation_steps=3, per_device_train_batch_size=3, optim="sgd", learning_rate=0.1), train_dataset=cls_rows(54)))
