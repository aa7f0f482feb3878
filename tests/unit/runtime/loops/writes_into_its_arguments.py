# whole: models write into the tensor, the dict or the list that the loop gives them, and the loop reads it there
class Masks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)
    def forward(self, x):
        if self.training:
            x[x > 1] = 0.0
        return self.layer(x)
class Fills(Masks):
    def forward(self, batch):
        batch["scores"] = self.layer(batch["x"])
        return batch["scores"].mean()
class Appends(Masks):
    def forward(self, x, seen):
        seen.append(float(x.sum()))
        return self.layer(x)
def train(models):
    opt = torch.optim.SGD([p for model in models for p in model.parameters()], lr=0.1)
    masks, fills, appends = models
    seen = []
    for step in range(5):
        x, y = torch.randn(8, 5), torch.randint(0, 3, (8,))
        batch = {"x": torch.randn(8, 5)}
        loss = F.cross_entropy(masks(x), y) + x.abs().mean()
        loss = loss + fills(batch) + F.cross_entropy(batch["scores"], y) + F.cross_entropy(appends(batch["x"], seen), y)
        opt.zero_grad(); loss.backward(); opt.step()
        log(loss, x.sum(), torch.tensor(sum(seen)), torch.tensor(len(seen)))
models = Masks(), Fills(), Appends()
for model in models:
    ddp.parallelize(model)
train(models)
end(*models)
