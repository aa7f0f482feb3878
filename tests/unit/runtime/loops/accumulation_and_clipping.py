# same: four micro-batches a step, the last one smaller
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
ddp.parallelize(net)
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(opt, 2, 0.5)
x, y = torch.randn(93, 6), torch.randint(0, 3, (93,))
for step, (a, b) in enumerate(zip(x.split(6), y.split(6))):
    loss = F.cross_entropy(net(a), b) / 4
    loss.backward()
    if (step + 1) % 4 == 0:
        log(nn.utils.clip_grad_norm_(net.parameters(), 0.3))
        opt.step(); schedule.step(); opt.zero_grad()
    log(loss)
end(net)
