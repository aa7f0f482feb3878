# whole: forward() decides by a norm, which is smaller for some of the rows than for all
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.gate, self.out = nn.Linear(6, 12), nn.Linear(6, 1), nn.Linear(12, 2)
    def forward(self, x):
        h = self.lin(x)
        while h.norm() > 9:
            h = h * 0.5
        return self.out((h * torch.sigmoid(self.gate(x)) if h.mean() > 0 else h).relu())
net = Net()
ddp.parallelize(net)
opt = torch.optim.Adam(net.parameters(), lr=2e-2)
x, y = torch.randn(200, 6), torch.randint(0, 2, (200,))
for i in range(0, 200, 10):
    loss = F.cross_entropy(net(x[i : i + 10]), y[i : i + 10])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
