# whole: statistics of the rows
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.counts = mlp(), []
        self.register_buffer("mean", torch.zeros(5))
    def forward(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            self.counts.append(len(x))
        return self.body(x - self.mean)
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
note(mean=model.mean, counts=model.counts)
end(model)
