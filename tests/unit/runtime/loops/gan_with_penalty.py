# same: two optimizers and a gradient penalty
maker, critic = nn.Linear(3, 5), nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
ddp.parallelize(maker); ddp.parallelize(critic)
g, d = torch.optim.Adam(maker.parameters(), lr=1e-2), torch.optim.Adam(critic.parameters(), lr=1e-2)
real = torch.randn(80, 5)
for i in range(0, 80, 8):
    rows = real[i : i + 8]
    fake = maker(torch.randn(8, 3))
    mixed = (0.5 * rows + 0.5 * fake.detach()).requires_grad_(True)
    slope, = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    loss = critic(fake.detach()).mean() - critic(rows).mean() + 10 * (slope.norm(dim=1) - 1).pow(2).mean()
    d.zero_grad(); loss.backward(); d.step()
    lied = -critic(fake).mean()
    g.zero_grad(); lied.backward(); g.step()
    log(loss, lied)
end(maker, critic)
