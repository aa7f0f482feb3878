# said: rows that one label leaves out of a mean, in the last rows of large batches, later than the first checks
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(5, 3)
    def forward(self, x, labels):
        return F.cross_entropy(self.lin(x), labels, ignore_index=7)
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(960, 5), torch.randint(0, 3, (960,))
for step, i in enumerate(range(0, 960, 24)):
    labels = y[i : i + 24].clone()
    if step >= 30:
        labels[19:] = 7
    loss = net(x[i : i + 24], labels)
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
