# same: numbers of Python's are of the rows
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.out = nn.Embedding(30, 16), nn.Linear(16, 30)
    def forward(self, ids):
        logits, target = self.out(self.emb(ids[:, :-1])), ids[:, 1:]
        right = int((logits.argmax(-1) == target).sum())
        return F.cross_entropy(logits.flatten(0, 1), target.flatten()), right, target.numel()
lm = LM()
ddp.parallelize(lm)
opt = torch.optim.AdamW(lm.parameters(), lr=1e-2)
ids = torch.randint(0, 30, (200, 9))
good = seen = 0
for step in range(20):
    loss, n, of = lm(ids[step % 25 * 8 : step % 25 * 8 + 8])
    opt.zero_grad(); loss.backward(); opt.step()
    good += n; seen += of
    log(loss); f"{good:d} of {seen:d}"
note(good=good, seen=seen)
end(lm)
