# same: net.forward(x)
net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = net
    def forward(self, x):
        return self.body(x)
model = Net()
ddp.parallelize(model)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(90, 5), torch.randint(0, 3, (90,))
for i in range(0, 90, 9):
    loss = F.cross_entropy(model.forward(x[i : i + 9]), y[i : i + 9])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(model)
