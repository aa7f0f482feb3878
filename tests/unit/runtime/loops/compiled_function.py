# same: a compiled function calls the model
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.out = nn.Linear(6, 12), nn.Linear(12, 3)
    def forward(self, x):
        return self.out(self.lin(x).relu())
net = Net()
net.compile(backend="eager")
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(64, 6), torch.randint(0, 3, (64,))
@torch.compile(backend="eager")
def loss_of(a, b):
    return F.cross_entropy(net(a), b)
for i in range(0, 64, 8):
    loss = loss_of(x[i : i + 8], y[i : i + 8])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
