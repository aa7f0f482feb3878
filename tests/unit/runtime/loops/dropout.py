# same: dropout
model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 3))
model = ddp.parallelize(model)
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
