# same: a backward() that raises after the first gradients, as one without memory does, and the loop goes on


class Fails(torch.autograd.Function):
    fails = False

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if Fails.fails:
            raise ValueError
        return grad


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.second(torch.tanh(F.linear(x, Fails.apply(self.first.weight), self.first.bias)))


model = ddp.parallelize(Net())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
for turn, (a, b) in enumerate(batches(x, y)):
    Fails.fails = turn == 2  # for a check of the call's gradients, too
    loss = F.cross_entropy(model(a), b)
    Fails.fails = turn in (2, 5)
    try:
        loss.backward()
    except ValueError:
        optimizer.zero_grad()
        continue
    finally:
        Fails.fails = False
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item())
end(model)
