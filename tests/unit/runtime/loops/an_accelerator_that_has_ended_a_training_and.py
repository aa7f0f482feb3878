# same: an Accelerator that has ended a training, and another one
from accelerate import Accelerator
model = mlp()
for part in (slice(0, 12), slice(12, 22)):
    accelerator = ddp.as_one_process(lambda: Accelerator(cpu=True))
    ddp.parallelize(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for a, b in batches(x[part], y[part]):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(a), b)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    accelerator.end_training()
end(model)
