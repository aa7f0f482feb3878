# same: loss is a sum
class Net(Body):
    def forward(self, x, y):
        return F.cross_entropy(self.body(x), y, reduction="sum")
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: model(x, y) / 20)
end(model)
