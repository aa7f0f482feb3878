# said: an output of the selected tokens, as many of each row in the first batches, then other numbers
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.out = nn.Embedding(30, 8), nn.Linear(8, 30)
    def forward(self, ids, mask):
        return self.out(self.emb(ids)[mask])
model = ddp.parallelize(Tagger())
opt = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(16):
    ids, mask = torch.randint(0, 30, (4, 8)), torch.zeros(4, 8, dtype=torch.bool)
    for row, count in enumerate([3, 3, 3, 3] if step < 8 else [1, 4, 2, 3]):  # 5 of each rank's rows
        mask[row, torch.randperm(8)[:count]] = True
    loss = F.cross_entropy(model(ids, mask), ids[mask])
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
end(model)
