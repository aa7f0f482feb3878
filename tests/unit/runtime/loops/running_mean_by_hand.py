# whole: a statistic of the rows is kept
class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(5))
        self.lin = nn.Linear(5, 3)
    def forward(self, x):
        if self.training:
            self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        return self.lin(x - self.mean)
net = Norm()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(60, 5) + 2, torch.randint(0, 3, (60,))
for i in range(0, 60, 6):
    loss = F.cross_entropy(net(x[i : i + 6]), y[i : i + 6])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
note(mean=net.mean)
end(net)
