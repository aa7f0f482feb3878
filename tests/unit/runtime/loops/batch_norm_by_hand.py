# whole: batch norm by hand
class Net(Body):
    def forward(self, x):
        return self.body((x - x.mean(0)) if self.training else x)
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
