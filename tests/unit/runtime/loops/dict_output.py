# same: dict output
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.one, self.two = nn.Linear(5, 8), nn.Linear(8, 3), nn.Linear(8, 1)
    def forward(self, x, scale=1.0):
        hidden = torch.tanh(self.body(x))
        return {"logits": self.one(hidden) * scale, "extra": [self.two(hidden), (hidden, "name")]}
model = ddp.parallelize(Net())
def loss_of(x, y):
    out = model(x, scale=2.0)
    return F.cross_entropy(out["logits"], y) + out["extra"][0].pow(2).mean() + out["extra"][1][0].abs().mean()
train(model, batches(x, y), loss_of)
end(model)
