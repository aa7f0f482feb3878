# same: tokens as a file of a large text has them, unsigned integers of 16 bits
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.out = nn.Embedding(30, 8), nn.Linear(8, 30)
    def forward(self, ids, targets):
        return F.cross_entropy(self.out(self.emb(ids.long())).flatten(0, 1), targets.long().flatten())
lm = ddp.parallelize(LM())
opt = torch.optim.SGD(lm.parameters(), lr=0.5)
ids = torch.randint(0, 30, (6, 80)).to(torch.uint16)
for start in range(0, 70, 7):
    loss = lm(ids[:, start : start + 7], ids[:, start + 1 : start + 8])
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
end(lm)
