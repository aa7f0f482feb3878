# same: weights of values that are alike at first
class Net(Body):
    def forward(self, x, y, *, weight):
        return (F.cross_entropy(self.body(x), y, reduction="none") * weight).sum() / weight.sum()
model = ddp.parallelize(Net())
weights = torch.cat([torch.full((16,), 0.5), torch.rand(24)])
train(model, batches(*rows(40), weights), lambda x, y, weight: model(x, y, weight=weight))
end(model)
