# same: sets of unlike size in a list, a tensor for each row
class Sets(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.outer = nn.Linear(5, 4), nn.Linear(4, 3)
    def forward(self, sets):
        return self.outer(torch.stack([self.inner(of).relu().sum(0) for of in sets]))
net = Sets()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.05)
sizes = torch.randint(1, 5, (60,)).tolist()
sets, y = [torch.randn(size, 5) for size in sizes], torch.randint(0, 3, (60,))
for i in range(0, 60, 6):
    loss = F.cross_entropy(net(sets[i : i + 6]), y[i : i + 6])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
assert len(getattr(ddp._splits.get(net), "kinds", ())) < 3
end(net)
