# whole: forward() of a library's class is replaced after some steps, and its calls are noted
model, forward, seen = ddp.parallelize(mlp()), nn.Linear.forward, []
def traced(self, x):
    out = forward(self, x)
    seen.append([len(x), out.detach().mean().item()])
    return out
for step, batch in enumerate(batches(x, y)):
    nn.Linear.forward = traced if step > 2 else forward
    train(model, [batch], lambda x, y: F.cross_entropy(model(x), y))
nn.Linear.forward = forward
figures += seen
end(model)
