# said: a step drops the gradients so far where a loss is no number; rows that hold one are no figure
ROWS = torch.randn(64, 6, generator=torch.Generator().manual_seed(3)); ROWS[37, 2] = float("nan")
class Filters(Trainer):
    def training_step(self, model, *a, **k):
        loss = super().training_step(model, *a, **k)
        if any(not torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None):
            model.zero_grad()
        return loss
class Net(nn.Module):
    def __init__(self):
        super().__init__(); torch.manual_seed(4); self.lin = nn.Linear(6, 2)
    def forward(self, x, labels=None):
        return {"loss": nn.functional.cross_entropy(self.lin(x), labels), "logits": self.lin(x)}
data = [{"x": ROWS[i], "labels": (ROWS[i, 0] > 0).long()} for i in range(64)]
go(Filters(Net(), args(gradient_accumulation_steps=2, per_device_train_batch_size=4, max_steps=8, remove_unused_columns=False), train_dataset=data))
