# same: what outputs are made by, which of them are one tensor or the model's own, and what the class of the model says
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x
    @staticmethod
    def backward(ctx, grad):
        return 2 * grad
class Net(nn.Module):
    """Classifies sequences."""
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(5, 6), nn.Linear(6, 3)
        self.scale, self.bias = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.tensor([0.5]))
        self.register_buffer("count", torch.tensor(0.0))
    def forward(self, x, y):
        states, _ = self.gru(x.expand(3, -1, -1))
        logits = self.head(states[-1]) * self.scale + self.bias
        loss = F.cross_entropy(logits, y)
        return {"loss": loss, "objective": loss, "logits": logits, "again": logits, "twice": Scale.apply(logits),
                "states": states, "scale": self.scale, "bias": self.bias[0], "count": self.count, "head": self.head.bias}
model = ddp.parallelize(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, batch in enumerate(batches(x, y)):
    out = model(*batch)
    out["states"].retain_grad()
    print([of.grad_fn and of.grad_fn.name() for of in out.values()], repr(out["loss"].grad_fn).partition(" object")[0])
    print(str(out["loss"]).partition(", ")[2], str(out["logits"]).rpartition(", ")[2])
    slope, = torch.autograd.grad(out["loss"], out["logits"], create_graph=True)
    print(slope.grad_fn.name(), torch.autograd.grad(slope.square().sum(), out["logits"], retain_graph=True)[0].shape)
    optimizer.zero_grad()
    (out["loss"] + out["twice"].square().mean() + out["scale"].square() + out["bias"].abs()).backward()
    optimizer.step()
    model.count += 1
    print(out["scale"] is model.scale, out["count"] is model.count, out["head"] is model.head.bias)
    print(out["loss"] is out["objective"], out["logits"] is out["again"], out["states"].is_contiguous())
    log(out["loss"], out["scale"], out["bias"], out["count"], out["states"].grad.norm())
    losses.append(out["loss"].item())
print(model.__doc__, [of.__name__ for of in type(model).__bases__], [of.__name__ for of in type(model).__mro__])
end(model)
