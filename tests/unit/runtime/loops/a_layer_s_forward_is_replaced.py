# whole: forward() of one of a library's layers is replaced by a function that notes its calls in a list of the script
model, seen = mlp(), []
forward = model[0].forward
def traced(x):
    out = forward(x)
    seen.append([len(x), out.detach().mean().item()])
    return out
model[0].forward = traced
ddp.parallelize(model)
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
figures += seen
end(model)
