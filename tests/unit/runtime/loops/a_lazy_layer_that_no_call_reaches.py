# same: it has no parameters yet, and is called all the same
class Lazy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head, self.spare = nn.LazyLinear(8), nn.LazyLinear(3), nn.LazyLinear(2)
    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))
model = ddp.parallelize(Lazy())
model(x[:4])
optimizer = torch.optim.SGD([*model.body.parameters(), *model.head.parameters()], lr=0.1)
train(model, batches(x, y), lambda rows, labels: F.cross_entropy(model(rows), labels), optimizer)
end(model.body, model.head)
