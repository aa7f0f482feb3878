# whole: a distribution
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.value = mlp(), nn.Linear(5, 1)
    def forward(self, x):
        return torch.distributions.Categorical(logits=self.body(x)), self.value(x).squeeze(1)
model = ddp.parallelize(Policy())
def loss(x, y):
    actions, values = model(x)
    return -(actions.log_prob(y) * values.detach()).mean() + (values - y).pow(2).mean()
train(model, batches(x, y), loss)
end(model)
