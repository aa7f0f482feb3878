# same: what a notebook asks of a model's exact class, when it has been divided
def begin_anew(m):
    if type(m) == nn.Linear:
        nn.init.constant_(m.weight, 0.1); nn.init.zeros_(m.bias)
names = {nn.Linear: "linear", nn.Sequential: "stack"}
net = ddp.parallelize(nn.Linear(5, 3))
x, y = torch.randn(60, 5), torch.randint(0, 3, (60,))
for fold in range(3):
    net.apply(begin_anew)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for i in range(0, 60, 6):
        loss = F.cross_entropy(net(x[i : i + 6]), y[i : i + 6])
        opt.zero_grad(); loss.backward(); opt.step()
        log(loss)
    print(names[type(net)], type(net) in (nn.Linear, nn.Conv2d), isinstance(net, nn.Linear), type(net) == nn.Conv2d)
end(net)
