# same: sequence first
model = ddp.parallelize(Recurrent())
steps = torch.randn(22, 7, 5)
train(model, batches(steps, y), lambda x, y: F.cross_entropy(model(x.transpose(0, 1)), y))
end(model)
