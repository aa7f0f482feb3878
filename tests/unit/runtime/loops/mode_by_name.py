# same: one of the tasks needs whole batches, the other does not
class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.out = nn.Linear(6, 10), nn.Linear(10, 3)
    def forward(self, x, task="classify"):
        h = torch.relu(self.trunk(x))
        return self.out(h) if task == "classify" else F.normalize(h) @ F.normalize(h).T
net = Heads()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(96, 6), torch.randint(0, 3, (96,))
for step in range(24):
    rows = slice(step % 8 * 12, step % 8 * 12 + 12)
    if step % 4 == 3:
        loss = F.cross_entropy(net(x[rows], task="contrast") / 0.5, torch.arange(12))
    else:
        loss = F.cross_entropy(net(x[rows]), y[rows])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
