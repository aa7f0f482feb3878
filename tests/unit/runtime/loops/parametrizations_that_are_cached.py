# same: parametrizations that are cached
class Halved(nn.Module):
    def forward(self, weight):
        return weight / 2
model = mlp()
nn.utils.parametrize.register_parametrization(model[0], "weight", Halved())
ddp.parallelize(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for a, b in batches(x, y):
    with nn.utils.parametrize.cached():
        loss = F.cross_entropy(model(a), b)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
end(model)
