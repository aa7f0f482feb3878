# same: dropout of two views in one tensor is no dropout of rows, so the only micro-batch is not divided
class Views(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(6, 16), nn.Dropout(0.3), nn.Linear(16, 8)
    def forward(self, x, y, labels=None):
        u, v = self.b(self.drop(torch.tanh(self.a(torch.cat([x, y]))))).chunk(2)
        score = nn.functional.cosine_similarity(u, v)
        return {"loss": nn.functional.mse_loss(score, labels), "logits": score}
rows = [{"x": torch.randn(6), "y": torch.randn(6), "labels": torch.rand(())} for _ in range(24)]
go(Trainer(Views(), args(per_device_train_batch_size=4, gradient_accumulation_steps=1), train_dataset=rows))
