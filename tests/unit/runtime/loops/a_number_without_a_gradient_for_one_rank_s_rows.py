# same: a number without a gradient for one rank's rows
class Net(TwoTargets):
    def forward(self, x, y, t):
        h, has, two = self.hidden(x), ~t.isnan(), torch.tensor(0.0)
        if has.any():
            two = F.mse_loss(self.two(h)[has].squeeze(-1), t[has])
        return F.mse_loss(self.one(h).squeeze(-1), y) + two, two
model = ddp.parallelize(Net())
train(model, batches(*targets(12, 13, *range(16, 20), 22, 23)), lambda *batch: 0.1 * sum(model(*batch)))
end(model)
