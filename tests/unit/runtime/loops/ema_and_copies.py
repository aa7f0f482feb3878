# same: ema and copies
model = ddp.parallelize(mlp())
mean = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for a, b in batches(x, y):
    loss_of = lambda x, y: F.cross_entropy(model(x), y) + (mean(x) - model(x)).pow(2).mean()
    train(model, [(a, b)], loss_of, optimizer)
    with torch.no_grad():
        for old, new in zip(mean.parameters(), model.parameters()):
            old.mul_(0.9).add_(new, alpha=0.1)
note(mean=list(mean.parameters()))
end(model)
