# same: a backward() for each loss
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.one, self.two = nn.Linear(5, 8), nn.Linear(8, 3), nn.Linear(8, 1)
    def forward(self, x):
        hidden = torch.tanh(self.body(x))
        return self.one(hidden), self.two(hidden)
model = ddp.parallelize(Net())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for number, (a, b) in enumerate(batches(x, y)):
    optimizer.zero_grad()
    first, second = model(a)
    loss, more = F.cross_entropy(first, b), second.pow(2).mean()
    if number == 1:
        (loss + more).backward()
    else:
        loss.backward(retain_graph=True)
        losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
        (loss * more).backward()
    losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
    optimizer.step()
    losses.append(loss.item())
    if number == 3:
        model.one.weight.requires_grad_(False)
end(model)
