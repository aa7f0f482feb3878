# whole: values that two arguments choose together, all of them at first
class Net(Body):
    def forward(self, x, y, mask):
        counts = mask * (y > 0).float()
        return ((self.body(x) - y).pow(2) * counts).sum() / counts.sum().clamp(min=1)
mask = torch.cat([torch.ones(16, 3), (torch.rand(24, 3) > 0.4).float()])
model = ddp.parallelize(Net())
train(model, batches(rows(40)[0], torch.randn(40, 3), mask), model)
end(model)
