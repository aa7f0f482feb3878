# same: gradients of samples
from torch.func import functional_call, grad, vmap
model = ddp.parallelize(mlp())
def of_one(parameters, x, y):
    return F.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])
norms = []
def loss_of(x, y):
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    found = vmap(grad(of_one), in_dims=(None, 0, 0))(parameters, x, y)
    norms.append(found["0.weight"].norm().item())
    return F.cross_entropy(model(x), y)
train(model, batches(x, y), loss_of)
note(norms=norms)
end(model)
