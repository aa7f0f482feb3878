# same: backward() raises for a row of one rank in a step of two micro-batches, whose gradients are exchanged once
class Root(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sqrt()
    @staticmethod
    def backward(ctx, grad):
        if (ctx.saved_tensors[0] == 0).any():
            raise FloatingPointError("the root of 0 has no gradient")
        return grad / (2 * ctx.saved_tensors[0].sqrt())
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 8, bias=False), nn.Linear(8, 3)
    def forward(self, x):
        return self.second(Root.apply(self.first(x).square()))
x, y = rows(96)
x[50] = x[87] = 0  # in a first micro-batch, and in a second one
net = ddp.parallelize(Net())
opt = torch.optim.SGD(net.parameters(), lr=0.05)
for turn, (a, b) in enumerate(batches(x, y)):
    loss = F.cross_entropy(net(a), b)
    losses.append(loss.item())
    try:
        loss.backward()
    except FloatingPointError:
        opt.zero_grad()
        figures.append([turn])
        continue
    if turn % 2:
        opt.step()
        opt.zero_grad()
end(net)
