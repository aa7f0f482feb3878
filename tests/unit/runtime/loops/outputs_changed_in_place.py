# same: outputs that the loop changes in place, or detaches so
model = ddp.parallelize(nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3)))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    x, y = torch.randn(5, 8), torch.tensor([0, 1, 2, 0, 1])
    logits = model(x)
    logits.mul_(0.5)
    logits[..., 0] -= 1
    logits.masked_fill_(x[:, :1] > 1, 0.0)
    target = model(x)
    target.detach_()
    loss = F.cross_entropy(logits, y) + F.mse_loss(logits, target)
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
end(model)
