# same: dict input
class Net(Body):
    def forward(self, batch, *, names):
        assert len(names) == len(batch["x"])
        return self.body(batch["x"]) * batch["factor"].unsqueeze(1)
model = ddp.parallelize(Net())
def loss_of(x, y):
    return F.cross_entropy(model({"x": x, "factor": y + 1.0}, names=["a"] * len(x)), y)
train(model, batches(x, y), loss_of)
end(model)
