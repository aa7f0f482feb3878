# whole: parts of a contrastive model get a parametrization after some steps, and lose one
from torch.nn.utils import parametrizations, parametrize
class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.f, self.g, self.h = parametrizations.weight_norm(nn.Linear(5, 6)), nn.Linear(6, 6), nn.Linear(6, 4)
    def forward(self, x):
        z = F.normalize(self.h(torch.tanh(self.g(torch.tanh(self.f(x))))), dim=1)
        return (z @ z.T * 3).logsumexp(1).mean()
ddp._Split.worth = -9.0  # also where that takes longer
model = ddp.parallelize(Pairs())
for epoch in range(3):
    if epoch == 1:
        parametrize.remove_parametrizations(model.f, "weight")
        parametrizations.weight_norm(model.g)
    if epoch == 2:
        parametrize.remove_parametrizations(model.g, "weight")
    train(model, batches(*rows(40)), lambda x, y: model(x))
end(model)
