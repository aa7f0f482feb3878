# whole: outputs in ever more forms
class Net(Body):
    def forward(self, x):
        out = self.body(x)
        return out, *(out.pow(2).mean() for _ in losses)
model = ddp.parallelize(Net())
def loss_of(x, y):
    out, *more = model(x)
    return F.cross_entropy(out, y) + 0.01 * sum(more)
train(model, batches(x, y, size=1) + batches(x, y, size=2), loss_of)
end(model)
