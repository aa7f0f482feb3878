# same: a search of the learning rate, the old weights again, then the training; no comparison is left over
net = nn.Sequential(nn.Linear(6, 24), nn.ReLU(), nn.Linear(24, 3))
ddp.parallelize(net)
x, y = torch.randn(96, 6), torch.randint(0, 3, (96,))
def train(lr, growth):
    opt = torch.optim.SGD(net.parameters(), lr=lr)
    for i in range(0, 96, 8):
        loss = F.cross_entropy(net(x[i : i + 8]), y[i : i + 8])
        opt.zero_grad(); loss.backward(); opt.step()
        opt.param_groups[0]["lr"] *= growth
        log(loss)
    ddp.check_replicas(net)
start = {name: value.clone() for name, value in net.state_dict().items()}
train(1e-4, 2.0)
net.load_state_dict(start)
train(0.05, 1.0)
end(net)
