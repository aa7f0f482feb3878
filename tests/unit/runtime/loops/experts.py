# same: rows choose an expert
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(5, 3), nn.ModuleList(nn.Linear(5, 4) for _ in range(3))
    def forward(self, x):
        weights, out = self.gate(x).softmax(1), torch.zeros(len(x), 4)
        best = weights.argmax(1)
        for n, expert in enumerate(self.experts):
            rows = best == n
            if rows.any():
                out[rows] = expert(x[rows]) * weights[rows, n : n + 1]
        return out
net = Experts()
ddp.parallelize(net)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
x, y = torch.randn(80, 5), torch.randint(0, 4, (80,))
for i in range(0, 80, 5):
    loss = F.cross_entropy(net(x[i : i + 5]), y[i : i + 5])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
