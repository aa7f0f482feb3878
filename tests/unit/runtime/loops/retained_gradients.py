# same: gradients of one output, from which another is computed, are kept of two backward(), or halved by a hook
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 8), nn.Linear(8, 3)
    def forward(self, x):
        h = torch.relu(self.a(x))
        return self.b(h), h
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(120, 5), torch.randint(0, 3, (120,))
def gone(h):
    (h * 1).retain_grad(); h[:].retain_grad(); net(x[:10])[1].retain_grad()
for step, i in enumerate(range(0, 120, 10)):
    out, h = net(x[i : i + 10])
    h.retain_grad()
    seen = []
    gone(h)
    out.register_hook(lambda g: seen.append(g.norm().item()))
    if step % 2:
        h.register_hook(lambda g: 0.5 * g)
    loss = F.cross_entropy(out, y[i : i + 10]) + 1e-2 * h.pow(2).mean()
    opt.zero_grad(); loss.backward(retain_graph=True); (h.mean() + out.mean()).backward(); opt.step()
    log(loss); log(h.grad.norm()); log(torch.tensor(seen[0]))
end(net)
