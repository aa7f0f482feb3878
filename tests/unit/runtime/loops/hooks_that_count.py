# whole: hooks that count
model, calls = ddp.parallelize(mlp()), []
model.register_forward_pre_hook(lambda module, given: calls.append(("before", len(given[0]))))
model[0].register_forward_hook(lambda module, given, out: calls.append(("first", len(out))))
model[0].register_forward_hook(lambda module, given, out: calls.append(("second", len(out))))
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
note(calls=calls)
end(model)
