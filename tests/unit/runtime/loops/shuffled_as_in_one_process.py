# same: shuffled as in one process
model = ddp.parallelize(mlp())
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4, shuffle=True)
for epoch in range(2):
    train(model, loader, lambda x, y: F.cross_entropy(model(x), y))
note(drawn_in_loop=torch.rand(2))
end(model)
