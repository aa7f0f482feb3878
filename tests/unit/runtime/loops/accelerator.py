# same: accelerator
from accelerate import Accelerator
accelerator = ddp.as_one_process(lambda: Accelerator())
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
model = ddp.parallelize(model)
seen = 0
for a, b in loader:
    seen += len(a)
    loss = F.cross_entropy(model(a), b)
    accelerator.backward(loss)
    optimizer.step(), optimizer.zero_grad()
    losses.append(accelerator.gather(loss.detach()).item())
assert seen == 22 and accelerator.num_processes == 1 and accelerator.is_main_process
assert type(accelerator.unwrap_model(model)).__name__ == "Sequential"
end(model)
