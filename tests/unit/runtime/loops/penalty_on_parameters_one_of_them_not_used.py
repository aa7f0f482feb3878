# same: penalty on parameters, one of them not used
model = mlp()
model.unused = nn.Linear(2, 2)
model.forward = lambda x: model[2](model[1](model[0](x)))
ddp.parallelize(model)
def loss_of(x, y):
    return F.cross_entropy(model(x), y) + 0.01 * sum(p.pow(2).sum() for p in model.parameters())
train(model, batches(x, y), loss_of)
end(model)
