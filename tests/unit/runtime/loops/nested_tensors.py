# said: batches that are nested tensors, of either layout, are computed whole, alone and beside a tensor with rows
class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)
    def forward(self, x, scale=None):
        h = torch.nested.to_padded_tensor(F.relu(self.first(x)), 0.0).sum(1)
        return self.last(h if scale is None else h * scale[:, None])
alone, beside = ddp.parallelize(Nested()), ddp.parallelize(Nested())
opt = torch.optim.SGD([*alone.parameters(), *beside.parameters()], lr=0.1)
for step in range(8):
    rows = [torch.randn(1 + (step + n) % 4, 4) for n in range(6)]
    batch = torch.nested.nested_tensor(rows, layout=torch.jagged if step % 2 else torch.strided)
    logits = alone(batch) if step < 4 else beside(batch, torch.rand(6))
    loss = F.cross_entropy(logits, torch.tensor([0, 1] * 3))
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
end(alone, beside)
