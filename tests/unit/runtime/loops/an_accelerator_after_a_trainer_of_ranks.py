# same: an Accelerator after a Trainer that generates, which knows of several processes
import accelerate
state = accelerate.PartialState(cpu=True)
state.num_processes, state.process_index = 2, rank
accelerator = ddp.as_one_process(lambda: accelerate.Accelerator(cpu=True))
model = mlp()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
model = ddp.parallelize(model)
for a, b in loader:
    loss = F.cross_entropy(model(a), b)
    accelerator.backward(loss)
    optimizer.step(), optimizer.zero_grad()
    losses.append(accelerator.gather(loss.detach()).item())
assert accelerator.num_processes == 1 and state.num_processes == 2
end(model)
