# whole: batch norm beside a sparse embedding
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.norm, self.head = nn.Embedding(3, 5, sparse=True), nn.BatchNorm1d(5), nn.Linear(5, 3)
    def forward(self, x, y):
        return self.head(self.norm(self.table(y) + x))
model = ddp.parallelize(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train(model, batches(x[:20], y[:20]), lambda x, y: F.cross_entropy(model(x, y), 2 - y), optimizer)
end(model)
