# same: forward() decides by a largest value and a mean, on which ranks that agree are right
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.out = nn.Linear(6, 12), nn.Linear(12, 2)
    def forward(self, x):
        h = self.lin(x)
        if h.abs().max() > 1e4 or h.mean() > 50:
            h = h.clamp(-1e4, 1e4)
        return self.out(h.relu())
net = Net()
ddp.parallelize(net)
opt = torch.optim.Adam(net.parameters(), lr=2e-2)
x, y = torch.randn(120, 6), torch.randint(0, 2, (120,))
for i in range(0, 120, 10):
    loss = F.cross_entropy(net(x[i : i + 10]), y[i : i + 10])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
