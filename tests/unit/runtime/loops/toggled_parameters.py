# same: what is trained changes in each step
class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(5, 4), nn.Linear(5, 4), nn.Linear(4, 3)
    def forward(self, x):
        return self.out(torch.tanh(self.a(x)) + torch.tanh(self.b(x)))
net = Two()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(108, 5), torch.randint(0, 3, (108,))
for step in range(18):
    for p in net.a.parameters(): p.requires_grad_(step % 2 == 0)
    for p in net.b.parameters(): p.requires_grad_(step % 2 == 1)
    rows = slice(step * 6, step * 6 + 6)
    loss = F.cross_entropy(net(x[rows]), y[rows])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
