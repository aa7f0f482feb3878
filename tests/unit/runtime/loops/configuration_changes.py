# whole: a configuration, a class of flags and a dict, which forward() reads, change late
from types import SimpleNamespace
cfg, options = SimpleNamespace(mix=0.0), {"centre": False}
class Flags:
    roll = False
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.out = nn.Linear(6, 12), nn.Linear(12, 3)
    def forward(self, x):
        h = self.lin(x).relu()
        if options["centre"]:
            h = h - h.mean(0)
        return self.out((1 - cfg.mix) * h + cfg.mix * h.roll(1, 0) if Flags.roll else h)
net = Net()
ddp.parallelize(net)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
x, y = torch.randn(300, 6), torch.randint(0, 3, (300,))
for step, i in enumerate(range(0, 300, 10)):
    if step == 13:
        cfg.mix, Flags.roll = 0.3, True
    if step == 23:
        options["centre"] = True
    loss = F.cross_entropy(net(x[i : i + 10]), y[i : i + 10])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
