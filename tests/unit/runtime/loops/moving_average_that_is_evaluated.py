# same: the average of a model's weights is evaluated, a copy that no optimizer trains
ddp._Split.worth = 0.0
model = ddp.parallelize(mlp())
average, opt = copy.deepcopy(model).eval(), torch.optim.SGD(model.parameters(), lr=0.1)
x, y = rows(120)
for a, b in batches(x, y, size=6):
    loss = F.cross_entropy(model(a), b)
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        for one, other in zip(average.parameters(), model.parameters()):
            one.lerp_(other, 0.1)
        log(loss, F.cross_entropy(average(x[:13]), y[:13]), F.cross_entropy(average(x[13:]), y[13:]))
end(model, average)
