# same: a part is called before the model
class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.scale = mlp(), nn.Linear(5, 3), nn.Parameter(torch.tensor(1.0))
    def forward(self, x):
        return self.one(x)
model = ddp.parallelize(Towers())
def loss_of(x, y):
    alike = F.normalize(model.one(x)) @ F.normalize(model.two(x)).T * model.scale.exp()
    return F.cross_entropy(alike, torch.arange(len(x))) + F.cross_entropy(model(x), y)
train(model, batches(x, y), loss_of)
end(model)
