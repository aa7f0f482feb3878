# whole: contrastive, later
class Net(Body):
    def forward(self, x):
        z = F.normalize(self.body(x), dim=1)
        loss = F.cross_entropy(z @ z.roll(1, 1).T, torch.arange(len(x)))
        return (z, loss) if len(losses) > 3 else (z,)
model = ddp.parallelize(Net())
def loss_of(x, y):
    z, *more = model(x)
    return sum(more, F.cross_entropy(z, y))
train(model, batches(x, y), loss_of)
end(model)
