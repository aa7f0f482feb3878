# same: two models
maker, judge = ddp.parallelize(mlp(4, 5)), ddp.parallelize(mlp(5, 1))
first, second = (torch.optim.Adam(m.parameters(), lr=0.01) for m in (maker, judge))
for real, _ in batches(x, y):
    noise = torch.randn(len(real), 4)
    fake = maker(noise)
    loss = (F.softplus(-judge(real)) + F.softplus(judge(fake.detach()))).mean()
    second.zero_grad(); loss.backward(); second.step()
    lied = F.softplus(-judge(fake)).mean()
    first.zero_grad(); lied.backward(); first.step()
    losses += [loss.item(), lied.item()]
end(maker, judge)
