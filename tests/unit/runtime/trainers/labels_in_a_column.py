# same: numbers to be predicted stand in a column, and no label follows another
class Numbers(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1)
    def forward(self, x, labels=None):
        out = self.l(x)
        return {"loss": nn.functional.mse_loss(out, labels.float()), "logits": out}
rows = [{"x": torch.randn(6), "labels": torch.tensor([2 * i])} for i in range(32)]
go(Trainer(Numbers(), args(per_device_train_batch_size=8, gradient_accumulation_steps=1, max_steps=3), train_dataset=rows))
