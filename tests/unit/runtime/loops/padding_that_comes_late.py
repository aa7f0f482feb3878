# same: padding that comes late
class Net(Body):
    def forward(self, x, y):
        known = x.abs().sum(-1).gt(0).float()
        return ((self.body(x).sum(-1) - y).pow(2) * known).sum() / known.sum()
x = torch.randn(40, 3, 5)
x[16:] *= torch.rand(24, 3, 1) > 0.4
model = ddp.parallelize(Net())
train(model, batches(x, torch.randn(40, 3)), model)
end(model)
