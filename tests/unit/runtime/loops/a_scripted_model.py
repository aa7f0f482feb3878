# same: a scripted model
model = ddp.parallelize(torch.jit.script(mlp()))
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
