# whole: hook of the notebook
import itertools
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(5, 8), nn.ReLU()), nn.Linear(8, 3)
    def forward(self, x):
        return self.head(self.body(x))
net, seen = Net(), {}
net.body.register_forward_hook(lambda module, given, out: seen.update(hidden=out))
opt = torch.optim.Adam(net.parameters(), lr=0.01)
ddp.parallelize(net)
weights = itertools.cycle([1.0, 0.5, 2.0])
used = []
x, y = torch.randn(60, 5), torch.randint(0, 3, (60,))
for i in range(0, 60, 6):
    loss = F.cross_entropy(net(x[i : i + 6]), y[i : i + 6]) + seen["hidden"].pow(2).mean()
    opt.zero_grad(); loss.backward(); opt.step()
    used.append(next(weights))
    log(loss)
end(net)
