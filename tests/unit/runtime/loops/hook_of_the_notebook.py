# whole: hook of the notebook
model, seen = ddp.parallelize(mlp()), {}
model[0].register_forward_hook(lambda module, given, out: seen.update(hidden=out))
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y) + seen["hidden"].pow(2).mean())
end(model)
