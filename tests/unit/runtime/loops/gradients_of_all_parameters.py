# same: gradients of what model.parameters() goes through
model = ddp.parallelize(mlp(classes=3))
for part, labels in batches(x, y):
    loss = F.cross_entropy(model(part), labels)
    losses.append(loss.item())
    found = torch.autograd.grad(loss, model.parameters(), create_graph=True)
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), found):
            parameter -= 0.1 * gradient
end(model)
