# same: lazy
model = ddp.parallelize(nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(3)))
with torch.no_grad():
    model(x)
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
