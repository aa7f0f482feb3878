# same: a mode of PyTorch's counts the operations of some calls
from torch.utils.flop_counter import FlopCounterMode
model = ddp.parallelize(mlp())
for step, batch in enumerate(batches(x, y)):
    if step in (0, 3):
        with FlopCounterMode(display=False) as counter:
            train(model, [batch], lambda x, y: F.cross_entropy(model(x), y))
        figures.append([counter.get_total_flops()])
    else:
        train(model, [batch], lambda x, y: F.cross_entropy(model(x), y))
end(model)
