# whole: an ignored label of its own that comes late
class Net(Body):
    def forward(self, x, y):
        return F.cross_entropy(self.body(x), y, ignore_index=255)
x, y = rows(40)
y[16:][torch.rand(24) < 0.4] = 255
model = ddp.parallelize(Net())
train(model, batches(x, y), model)
end(model)
