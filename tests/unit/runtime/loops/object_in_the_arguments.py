# whole: object in the arguments
class Batch:
    def __init__(self, x):
        self.x = x
class Net(Body):
    def forward(self, batch):
        return self.body(batch.x)
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(Batch(x)), y))
end(model)
