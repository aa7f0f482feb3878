# whole: a function of the script that forward() calls is replaced by one over the batch
def by_row(z):
    return z / (z.norm(dim=1, keepdim=True) + 1e-6)
def by_batch(z):
    return (z - z.mean(0)) / (z.std(0) + 1e-3)
normalise = by_row
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 3)
    def forward(self, x):
        return self.b(normalise(torch.tanh(self.a(x))))
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(120, 5), torch.randint(0, 3, (120,))
for step, i in enumerate(range(0, 120, 6)):
    if step == 9:
        normalise = by_batch
    loss = F.cross_entropy(net(x[i : i + 6]), y[i : i + 6])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
