# whole: a mean over rows that the model selects by a threshold, all of them at first
class Net(Body):
    def forward(self, x, y):
        keep = (x[:, 0] < 0.3).float()
        return ((self.body(x).sum(1) - y).pow(2) * keep).sum() / keep.sum().clamp(min=1)
x = rows(40)[0]
x[:16, 0] = -x[:16, 0].abs()
model = ddp.parallelize(Net())
train(model, batches(x, torch.randn(40)), lambda *batch: 0.1 * model(*batch))
end(model)
