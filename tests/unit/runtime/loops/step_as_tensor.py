# same or said: a small tensor of integers is an argument
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(5, 3)
    def forward(self, x, step):
        h = self.lin(x)
        return h - (h.mean(0) if step > 6 else 0)
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(120, 5), torch.randint(0, 3, (120,))
for step, i in enumerate(range(0, 120, 10)):
    loss = F.cross_entropy(net(x[i : i + 10], torch.tensor(step)), y[i : i + 10])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
