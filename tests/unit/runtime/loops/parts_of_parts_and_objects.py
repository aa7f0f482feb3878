# said: an object of the notebook's own is given from part to part; what these call with tensors is divided
import dataclasses
@dataclasses.dataclass
class Rows:
    x: object
    hidden: object = None
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.gate = nn.Linear(6, 6), nn.Parameter(torch.ones(6))
    def forward(self, rows):
        self.seen = torch.tanh(self.inner(rows.hidden)) * self.gate  # is kept in the model
        return Rows(rows.x, rows.hidden + self.seen)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.layers, self.last = nn.Linear(5, 6), nn.ModuleList([Layer(), Layer()]), nn.Linear(6, 3)
    def forward(self, rows):
        rows = Rows(rows.x, self.first(rows.x))
        for layer in self.layers:
            rows = layer(rows)
        return Rows(rows.x, self.last(rows.hidden))
ddp._Split.worth = -9.0  # also where that takes longer
model = ddp.parallelize(Net())
x, y = rows(96)
hooked = model.layers[1].inner.weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(Rows(x)).hidden, y))
log(model.layers[0].seen.sum())
end(model)
