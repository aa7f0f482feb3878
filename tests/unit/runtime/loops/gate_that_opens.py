# same or said: rows meet once the gate has opened
class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.mix, self.gate = nn.Linear(6, 16), nn.Linear(16, 16), nn.Parameter(torch.zeros(1))
        self.out = nn.Linear(16, 1)
    def forward(self, x):
        h = torch.relu(self.left(x))
        return self.out(h + self.gate * self.mix(h.mean(0, keepdim=True)))
net = Gated()
ddp.parallelize(net)
adam = torch.optim.Adam(net.parameters(), lr=1e-3)
x = torch.randn(160, 6); y = x.prod(1, keepdim=True)
for step in range(40):
    at = slice(step % 10 * 16, step % 10 * 16 + 16)
    loss = (net(x[at]) - y[at]).pow(2).mean()
    adam.zero_grad(); loss.backward(); adam.step()
    log(loss)
end(net)
