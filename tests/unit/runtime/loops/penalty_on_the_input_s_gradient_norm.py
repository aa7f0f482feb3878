# same: penalty on the input's gradient norm
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    def forward(self, x, y=None):
        score = self.body(x)
        return score if y is None else (score, F.cross_entropy(score, y))
model = ddp.parallelize(Critic())
def loss_of(x, y):
    x = x.clone().requires_grad_()
    score, loss = model(x, y)
    of_score, = torch.autograd.grad(score, x, torch.ones_like(score), create_graph=True)
    of_loss, = torch.autograd.grad(loss, x, create_graph=True)
    return loss + (of_score.norm(2, dim=1) - 1).pow(2).mean() + 10 * of_loss.pow(2).sum()
train(model, batches(x, y), loss_of)
end(model)
