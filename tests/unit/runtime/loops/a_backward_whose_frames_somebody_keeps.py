# same: a backward() for each loss, whose frames somebody keeps, as a thread does that looks at all stacks
import sys
import torch.distributed as dist
plain, kept = dist.all_reduce, []
def all_reduce(*args, **options):
    kept.append(sys._getframe())
    return plain(*args, **options)
dist.all_reduce = all_reduce
model = ddp.parallelize(mlp(5, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for a, _ in batches(x, y):
    one, two = F.softplus(-model(a)).mean(), F.softplus(model(a.flip(1))).mean()
    optimizer.zero_grad()
    one.backward()
    two.backward()
    optimizer.step()
    losses.append(one.item() + two.item())
end(model)
