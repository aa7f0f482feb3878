# same: sequence first, as long as the batch
model = ddp.parallelize(Recurrent())
steps = torch.randn(20, 4, 5)
train(model, batches(steps, y[:20]), lambda x, y: F.cross_entropy(model(x.transpose(0, 1)), y))
end(model)
