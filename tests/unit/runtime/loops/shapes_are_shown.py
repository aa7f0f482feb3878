# same: a library's hooks show the shapes of a call without gradients, and a tracer records one
import types
library = types.ModuleType("library")
exec("""
def shapes(model, x):
    found, hooks = [], []
    def hook(module, given, output):
        found.append(list(output.shape))
    hook.__module__ = "library"
    hooks = [part.register_forward_hook(hook) for part in model.modules()]
    model(x)
    for handle in hooks:
        handle.remove()
    return found
""", library.__dict__)
ddp._Split.worth = 0.0
model = ddp.parallelize(mlp())
for _ in range(3):
    train(model, batches(x, y), lambda a, b: F.cross_entropy(model(a), b))
    with torch.no_grad():
        print(library.shapes(model, x))
        traced = torch.jit.trace(model, x)
        log(traced(x[:3]).sum(), model(x).sum())
end(model)
