# same: buffers
class Net(Body):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
    def forward(self, x):
        self.seen += 1
        return self.body(x)
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
note(seen=model.seen)
end(model)
