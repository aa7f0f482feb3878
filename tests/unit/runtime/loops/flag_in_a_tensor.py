# same or said: flags in a tensor, a list and a library's module change what the model computes, for one step each
flag, chosen = torch.zeros(2), [0]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(5, 3)
        self.lin.centres = False
    def forward(self, x):
        h = self.lin(x)
        return h - h.mean(0) if flag[1] or chosen[0] or self.lin.centres else h
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(240, 5), torch.randint(0, 3, (240,))
for step, i in enumerate(range(0, 240, 6)):
    flag[1], chosen[0], net.lin.centres = int(step == 27), int(step == 31), step == 35
    loss = F.cross_entropy(net(x[i : i + 6]), y[i : i + 6])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
