# same: logits and loss
class Net(Body):
    def forward(self, x, y=None):
        logits = self.body(x)
        return logits, F.cross_entropy(logits, y)
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: model(x, y)[1])
end(model)
