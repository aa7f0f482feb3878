# same: no optimizer of PyTorch's
w = nn.Linear(5, 3)
ddp.parallelize(w)
x, y = torch.randn(60, 5), torch.randint(0, 3, (60,))
for i in range(0, 60, 6):
    loss = F.cross_entropy(w(x[i : i + 6]), y[i : i + 6])
    loss.backward()
    with torch.no_grad():
        for p in w.parameters():
            p -= 0.1 * p.grad
            p.grad = None
    log(loss)
end(w)
