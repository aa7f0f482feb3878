# whole: the gradient meets in the batch, the outputs do not
class Whiten(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        return grad - grad.mean(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 6), nn.Linear(6, 3)
    def forward(self, x):
        return self.b(Whiten.apply(torch.tanh(self.a(x))))
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(64, 5), torch.randint(0, 3, (64,))
for i in range(0, 64, 8):
    loss = F.cross_entropy(net(x[i : i + 8]), y[i : i + 8])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
