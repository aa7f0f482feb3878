# whole: attention over the batch
class Net(Body):
    def forward(self, x):
        return self.body(x - x.mean(0))
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
