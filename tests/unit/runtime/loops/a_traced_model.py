# same: what torch.jit.trace gives hands its attributes on
model = ddp.parallelize(torch.jit.trace(mlp(), x[:4]))
train(model, batches(x, y), lambda rows, labels: F.cross_entropy(model(rows), labels))
end(model)
