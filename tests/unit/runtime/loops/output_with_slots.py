# whole: an object with slots hides its tensors
class Result:
    __slots__ = ("scores", "loss")
    def __init__(self, scores, loss):
        self.scores, self.loss = scores, loss
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(7, 4)
    def forward(self, x, t):
        scores = self.lin(x)
        return Result(scores, F.cross_entropy(scores, t))
tagger = Tagger()
ddp.parallelize(tagger)
opt = torch.optim.SGD(tagger.parameters(), lr=0.1)
x, t = torch.randn(90, 7), torch.randint(0, 4, (90,))
for i in range(0, 90, 9):
    r = tagger(x[i : i + 9], t[i : i + 9])
    opt.zero_grad(); r.loss.backward(); opt.step()
    log(r.loss, torch.tensor(len(r.scores)))
end(tagger)
