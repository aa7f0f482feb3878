# whole: nothing to add for one rank's rows
class Net(TwoTargets):
    def forward(self, x, y, t):
        h, has = self.hidden(x), ~t.isnan()
        two = F.mse_loss(self.two(h)[has].squeeze(-1), t[has]) if has.any() else h.sum() * 0.0
        return F.mse_loss(self.one(h).squeeze(-1), y) + two
model = ddp.parallelize(Net())
train(model, batches(*targets(12, 13, 22, 23)), model)
end(model)
