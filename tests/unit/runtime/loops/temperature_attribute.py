# same or said: an attribute that the loop sets
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.share = nn.Linear(5, 3), 0.0
    def forward(self, x):
        h = self.lin(x)
        return h - self.share * h.mean(0)
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(120, 5), torch.randint(0, 3, (120,))
for epoch in range(2):
    net.share = 0.5 * epoch
    for i in range(0, 120, 12):
        loss = F.cross_entropy(net(x[i : i + 12]), y[i : i + 12])
        opt.zero_grad(); loss.backward(); opt.step()
        log(loss)
end(net)
