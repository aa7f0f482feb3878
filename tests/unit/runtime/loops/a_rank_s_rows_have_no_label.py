# same: a rank's rows have no label
class Net(Body):
    def forward(self, x, y):
        return F.cross_entropy(self.body(x), y, ignore_index=-1)
model = ddp.parallelize(Net())
y[[12, 17]] = -1
train(model, batches(x, y, size=3), model)
end(model)
