# same: random numbers of the model
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 3)
    def forward(self, x):
        h = F.dropout(torch.relu(self.a(x + 0.1 * torch.randn_like(x))), 0.3, self.training)
        return self.b(h)
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(60, 5), torch.randint(0, 3, (60,))
for i in range(0, 60, 6):
    loss = F.cross_entropy(net(x[i : i + 6]), y[i : i + 6])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
note(drawn=torch.rand(2))
end(net)
