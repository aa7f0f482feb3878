# whole: an instance norm keeps statistics of the rows that it has seen
net = nn.Sequential(nn.Conv1d(2, 6, 3, padding=1), nn.InstanceNorm1d(6, track_running_stats=True), nn.ReLU(), nn.Flatten(), nn.Linear(30, 3))
ddp.parallelize(net)
x, y = torch.randn(40, 2, 5), torch.randint(0, 3, (40,))
train(net, batches(x, y), lambda x, y: F.cross_entropy(net(x), y))
note(mean=net[1].running_mean.tolist(), var=net[1].running_var.tolist())
end(net)
