# same: a model before the divided one
body = nn.Linear(5, 5)
model = ddp.parallelize(mlp())
optimizer = torch.optim.SGD([*body.parameters(), *model.parameters()], lr=0.1)
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(body(x)), y), optimizer)
note(body=list(body.parameters()))
end(model)
