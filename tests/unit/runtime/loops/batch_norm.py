# whole: batch norm
model = ddp.parallelize(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)))
train(model, batches(x[:20], y[:20]), lambda x, y: F.cross_entropy(model(x), y))
note(running=model[1].running_mean)
model.eval()
losses.append(F.cross_entropy(model(x), y).item())
end(model)
