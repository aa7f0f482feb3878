# same: a class keeps model and optimizer, and nobody compares the replicas
class Learner:
    def __init__(self, width):
        self.model = nn.Sequential(nn.Linear(5, width), nn.ReLU(), nn.Linear(width, 3))
        ddp.parallelize(self.model)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
    def fit(self, x, y):
        for a, b in zip(x.split(6), y.split(6)):
            loss = F.cross_entropy(self.model(a), b)
            self.opt.zero_grad(); loss.backward(); self.opt.step()
            log(loss)
learner = Learner(8)
learner.fit(torch.randn(60, 5), torch.randint(0, 3, (60,)))
end(learner.model)
ddp.finish()
