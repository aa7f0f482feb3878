# same or said: a weighted loss in forward()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.loss = nn.Linear(5, 3), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.2]))
    def forward(self, x, y):
        out = self.lin(x)
        return self.loss(out, y), out
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(60, 5), torch.randint(0, 3, (60,))
for i in range(0, 60, 6):
    loss, out = net(x[i : i + 6], y[i : i + 6])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss, out.argmax(1).sum())
end(net)
