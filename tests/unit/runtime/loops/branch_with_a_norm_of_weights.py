# same: rare rows give one more output, and a library's module keeps what each call has computed
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.utils.parametrizations.spectral_norm(nn.Linear(5, 8)), nn.Linear(8, 3)
    def forward(self, x):
        out = self.b(torch.tanh(self.a(x)))
        return {"out": out, "size": out.square()} if (x[:, 0] > 1.5).any() else {"out": out}
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(120, 5), torch.randint(0, 3, (120,))
for i in range(0, 120, 6):
    of = net(x[i : i + 6])
    loss = F.cross_entropy(of["out"], y[i : i + 6]) + (of["size"].mean() if "size" in of else 0)
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
