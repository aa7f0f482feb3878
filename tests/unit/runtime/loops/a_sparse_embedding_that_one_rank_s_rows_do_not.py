# same: a sparse embedding that one rank's rows do not use, and its gradient asked for
class Net(Body):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(9, 5, sparse=True)
    def forward(self, x, ids):
        if (ids >= 0).any():
            x = x + self.table(ids.clamp(min=0)) * (ids >= 0)[:, None]
        return self.body(x)
model = ddp.parallelize(Net())
ids = torch.where(torch.arange(22) % 4 < 2, y, -1)  # rank 1's rows of a batch have none
train(model, batches(x, ids, y), lambda x, ids, y: F.cross_entropy(model(x, ids), y),
      torch.optim.SGD(model.parameters(), lr=0.1))
asked, = torch.autograd.grad(F.cross_entropy(model(x, y), y), [model.table.weight])
note(asked=asked.to_dense())
end(model)
