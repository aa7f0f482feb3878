# whole: a critic compares the rows of a batch; its parts are divided, and asked for gradients of their gradients
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.out = mlp(5, 6), nn.Linear(7, 1)
    def forward(self, x):
        h = self.body(x)
        return self.out(torch.cat([h, h.std(0).mean().expand(len(x), 1)], 1))
ddp._Split.worth = -9.0  # also where that takes longer
made, critic = ddp.parallelize(mlp(4, 5)), ddp.parallelize(Critic())
of_made, of_critic = (torch.optim.SGD(model.parameters(), 0.05) for model in (made, critic))
for real in torch.randn(30, 6, 5):
    fake, share = made(torch.randn(6, 4)), torch.rand(6, 1)
    mixed = (share * real + (1 - share) * fake.detach()).requires_grad_()
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    loss = critic(fake.detach()).mean() - critic(real).mean() + (slope.norm(2, dim=1) - 1).square().mean()
    of_critic.zero_grad()
    loss.backward()
    of_critic.step()
    against = -critic(fake).mean()
    of_made.zero_grad()
    against.backward()
    of_made.step()
    log(loss, against)
end(made, critic)
