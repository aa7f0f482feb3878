# same: a second network follows in forward()
class Byol(nn.Module):
    def __init__(self):
        super().__init__()
        self.online, self.target, self.head = nn.Linear(6, 4), nn.Linear(6, 4), nn.Linear(4, 4)
        self.target.load_state_dict(self.online.state_dict())
        self.target.requires_grad_(False)
    def forward(self, a, b):
        with torch.no_grad():
            for t, o in zip(self.target.parameters(), self.online.parameters()):
                t.mul_(0.99).add_(o, alpha=0.01)
        return 2 - 2 * F.cosine_similarity(self.head(self.online(a)), self.target(b)).mean()
net = Byol()
ddp.parallelize(net)
opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)
x = torch.randn(96, 6)
for i in range(0, 96, 8):
    loss = net(x[i : i + 8] + 0.1, x[i : i + 8] - 0.1)
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
note(target=list(net.target.parameters()))
end(net)
