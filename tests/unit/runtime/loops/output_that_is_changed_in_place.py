# same: output that is changed in place
model = ddp.parallelize(mlp())
def loss_of(x, y):
    out = model(x)
    out[:, 0] += 1
    return F.cross_entropy(out.squeeze(), y)
train(model, batches(x, y), loss_of)
end(model)
