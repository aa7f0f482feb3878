# whole: batch norm, and two calls for a loss
model = ddp.parallelize(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)))
train(model, batches(x[:20], y[:20]), lambda x, y: F.cross_entropy(model(x), y) + model(x + 1).pow(2).mean())
note(running=model[1].running_mean)
end(model)
