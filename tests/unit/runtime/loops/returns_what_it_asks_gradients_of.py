# whole: the model gives its own copy of the coordinates, of which the loop asks gradients
class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 8), nn.Linear(8, 1)
    def forward(self, at):
        at = at.clone().detach().requires_grad_(True)
        return self.b(torch.sin(self.a(at))), at
net = Field()
ddp.parallelize(net)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
points, wanted = torch.randn(24, 2), torch.randn(24, 2)
for step in range(5):
    value, at = net(points)
    slope = torch.autograd.grad(value, at, torch.ones_like(value), create_graph=True)[0]
    loss = F.mse_loss(slope, wanted)
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
