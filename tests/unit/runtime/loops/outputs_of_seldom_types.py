# said: outputs of types that no collective takes are sent; a sparse one is computed whole
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 4)
    def forward(self, x, sparse=False):
        logits = self.out(x)
        best = logits.argmax(1)
        other = logits.detach().relu().to_sparse() if sparse else best.to(torch.uint16)
        return logits, best.to(torch.int16), logits.to(torch.float8_e4m3fn), other
model = ddp.parallelize(Net())
opt = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(8):
    logits, best, small, other = model(torch.randn(5, 8), sparse=step > 5)
    loss = F.cross_entropy(logits, torch.arange(5) % 4)
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
    log(best.sum(), small.float().sum(), other.to_dense().long().sum() if step > 5 else other.long().sum())
end(model)
