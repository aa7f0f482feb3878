# same: a count of the model's own, an argument and a name of the script's each change one step
def centred(h):
    return h - h.mean(0) if at == 26 else h
class Net(Body):
    calls = 0
    def forward(self, x, step):
        self.calls += 1
        h = self.body(x.flip(0) if self.calls == 14 else x)
        return centred(h - float(step == 20) * h.mean(0))
net = Net()
ddp.parallelize(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = rows(120)
for at, (x, y) in enumerate(batches(x, y)):
    loss = F.cross_entropy(net(x, at), y)
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
end(net)
