# same or said: after 15 calls the model subtracts the mean of the batch
class Warm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.calls = nn.Linear(5, 4), 0
    def forward(self, x):
        self.calls += 1
        h = self.lin(x)
        return h - h.mean(0) if self.calls > 15 else h
net = Warm()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
x, y = torch.randn(120, 5), torch.randint(0, 4, (120,))
for epoch in range(3):
    for i in range(0, 120, 12):
        loss = F.cross_entropy(net(x[i : i + 12]), y[i : i + 12])
        opt.zero_grad(); loss.backward(); opt.step()
        log(loss)
end(net)
