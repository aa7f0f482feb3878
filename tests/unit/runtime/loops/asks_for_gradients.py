# whole: where gradients are wanted the rows are centred
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(5, 3)
    def forward(self, x):
        h = self.lin(x)
        return h - h.mean(0) if torch.is_grad_enabled() else h
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(60, 5), torch.randint(0, 3, (60,))
for i in range(0, 60, 6):
    loss = F.cross_entropy(net(x[i : i + 6]), y[i : i + 6])
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        right = (net(x[i : i + 6]).argmax(1) == y[i : i + 6]).sum()
    log(loss, right)
end(net)
