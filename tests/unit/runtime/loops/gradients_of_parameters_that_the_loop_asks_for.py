# same: gradients of parameters that the loop asks for
model = ddp.parallelize(mlp())
def loss_of(x, y):
    loss = F.cross_entropy(model(x), y)
    of_last, = torch.autograd.grad(loss, [list(model.parameters())[-2]], retain_graph=True)
    return loss * (1 + of_last.norm().detach())
train(model, batches(x, y), loss_of)
end(model)
