# whole: hook on a gradient
model = mlp()
for parameter in model.parameters():
    parameter.register_hook(lambda gradient: gradient.clamp(-0.05, 0.05))
ddp.parallelize(model)
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
