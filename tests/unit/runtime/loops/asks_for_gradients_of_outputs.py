# same: gradients of one output of the model with respect to another, and with respect to what a loss alone reads
class Maker(nn.Module):
    def __init__(self):
        super().__init__()
        self.style, self.image = nn.Linear(4, 6), nn.Linear(6, 9)
    def forward(self, noise):
        style = torch.tanh(self.style(noise))
        return torch.tanh(self.image(style)), style
net, other = Maker(), nn.Linear(4, 3)
ddp.parallelize(net)
ddp.parallelize(other)
opt = torch.optim.Adam([*net.parameters(), *other.parameters()], lr=1e-2)
usual = torch.zeros(())
for step in range(6):
    noise = torch.randn(10, 4)
    image, style = net(noise)
    loss = (image - noise[:, :1]).square().mean()
    if step % 2:
        slope, = torch.autograd.grad((image * torch.randn_like(image)).sum() + style.square().sum(), style, create_graph=True)
        length = slope.square().sum(1).sqrt()
        usual = usual.lerp(length.mean().detach(), 0.3)
        loss = loss + (length - usual).square().mean()
    scores = other(noise)
    entropy = torch.logsumexp(scores, 1).mean()
    pull, = torch.autograd.grad(entropy, scores, create_graph=True)
    loss = loss + entropy + pull.square().sum()
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss, usual)
end(net, other)
