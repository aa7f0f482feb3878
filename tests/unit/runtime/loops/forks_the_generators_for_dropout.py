# whole: a library's dropout draws within fork_rng(), after which the state of the generators is put back
class Dropped(Body):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.3)
    def forward(self, x):
        with torch.random.fork_rng():
            h = self.drop(torch.tanh(self.body[0](x)))
        return self.body[2](h)
model = ddp.parallelize(Dropped())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y) * (0.5 + torch.rand([])))
end(model)
