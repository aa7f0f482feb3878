# same: a rank's rows are masked
class Net(Body):
    def forward(self, x, y, mask):
        each = F.cross_entropy(self.body(x), y, reduction="none")
        return (each * mask).sum() / mask.sum()
model = ddp.parallelize(Net())
mask = torch.ones(22, dtype=torch.long)
mask[[0, 12, 17]] = 0
train(model, batches(x, y, mask, size=3), model)
end(model)
