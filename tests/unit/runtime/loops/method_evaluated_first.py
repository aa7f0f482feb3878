# same: a method is evaluated before it trains, and the model is never called
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp()
    def predict(self, x):
        return self.body(x)
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(64, 5), torch.randint(0, 3, (64,))
with torch.no_grad():
    for i in range(0, 64, 8):
        log(net.predict(x[i : i + 8]).sum())
for i in range(0, 64, 8):
    loss = F.cross_entropy(net.predict(x[i : i + 8]), y[i : i + 8])
    opt.zero_grad(); loss.backward(); opt.step()
    log(loss)
end(net)
