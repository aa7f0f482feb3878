# same: lazy
model = ddp.parallelize(nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(3)))
with torch.no_grad():
    model(x)
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
# the parameters of the next ones are drawn in a first call with gradients, beside dropout, and in that of a method
class Net(nn.Sequential):
    def loss(self, x, y):
        return F.cross_entropy(self(x), y)
for by_method in (False, True):
    other = ddp.parallelize(Net(nn.LazyLinear(8), nn.Dropout(0.2), nn.LazyLinear(3)))
    first = other.loss(x, y) if by_method else F.cross_entropy(other(x), y)
    first.backward()
    note(first=first.item(), drawn=torch.rand(1).item(), grad=other[0].weight.grad.tolist())
    for module in other:
        module.p = 0.0
    train(other, batches(x, y), other.loss if by_method else lambda x, y: F.cross_entropy(other(x), y))
    end(other)
