# same or said: a global name changes what the model computes
CENTRE = False
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(5, 3)
    def forward(self, x):
        h = self.lin(x)
        return h - h.mean(0) if CENTRE else h
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(120, 5), torch.randint(0, 3, (120,))
for step, i in enumerate(range(0, 120, 6)):
    CENTRE = step >= 9
    loss = F.cross_entropy(net(x[i : i + 6]), y[i : i + 6])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
