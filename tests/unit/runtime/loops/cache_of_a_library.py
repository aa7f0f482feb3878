# same: a cache that a library's class holds is one rank's where it trains, and whole where the next call reads it
ddp._Split.worth = 0.0
class Cache:
    def __init__(self, keys):
        self.keys = keys
Cache.__module__ = "transformers.cache_utils"
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.out = nn.Embedding(11, 8), nn.Linear(8, 11)
    def forward(self, ids, cache=None):
        keys = self.emb(ids) if cache is None else torch.cat([cache.keys, self.emb(ids)], 1)
        return self.out(keys.cumsum(1)[:, -ids.shape[1]:]), Cache(keys)
lm = ddp.parallelize(LM())
opt = torch.optim.SGD(lm.parameters(), lr=0.1)
ids = torch.randint(0, 11, (48, 6))
for batch in ids.split(8):
    loss = F.cross_entropy(lm(batch)[0][:, :-1].flatten(0, 1), batch[:, 1:].flatten())
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
    with torch.no_grad():
        out, cache = lm(batch)
        for _ in range(3):
            out, cache = lm(out[:, -1:].argmax(-1), cache)
        log(out.sum(), cache.keys.sum())
end(lm)
