# whole: NumPy decides now and then that rows meet
import numpy as np
np.random.seed(4)
class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(5, 3)
    def forward(self, x):
        out = self.lin(x)
        if np.random.rand() < 0.2:
            out = out - out.mean(0)
        return out
net = Mix()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(160, 5), torch.randint(0, 3, (160,))
for i in range(0, 160, 8):
    loss = F.cross_entropy(net(x[i : i + 8]), y[i : i + 8])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
