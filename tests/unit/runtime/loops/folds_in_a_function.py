# same: folds in a function; a model ends with its fold, one that holds itself when a rank's garbage collector runs
import gc, weakref
gc.disable()
def train_fold(number):
    torch.manual_seed(number)
    model = ddp.parallelize(mlp())
    model.owner = [model] * (number % 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for a, b in batches(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(a), b)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return weakref.ref(model), weakref.ref(model[0].weight)
for number in range(4):
    figures.append([float(of() is None) for of in train_fold(number)])
    if not ddp.is_main_process:
        gc.collect()
model = ddp.parallelize(mlp())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for a, b in batches(x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(a), b).backward()
    optimizer.step()
end(model)
