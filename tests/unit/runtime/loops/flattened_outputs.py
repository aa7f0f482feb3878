# same: an output with a row for each token, as of many GPTs, and states, detached in place; a token alone comes first
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(30, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 30)
    def forward(self, ids, states=None, targets=None):
        out, states = self.rnn(self.emb(ids), states)
        logits = self.out(out.reshape(-1, 8))
        return logits, states, None if targets is None else F.cross_entropy(logits, targets.reshape(-1))
lm = ddp.parallelize(GPT())
opt = torch.optim.SGD(lm.parameters(), lr=0.5)
ids, states = torch.randint(0, 30, (5, 200)), None
for start in range(20):
    length = 1 if start < 3 else 7
    for of in states or ():
        of.detach_()
    if start % 2:
        logits, states, loss = lm(ids[:, start : start + length], states, ids[:, start + 1 : start + length + 1])
    else:
        logits, states, _ = lm(ids[:, start : start + length], states)
        loss = F.cross_entropy(logits, ids[:, start + 1 : start + length + 1].reshape(-1))
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
    log(logits.detach().sum(), logits.detach()[3].sum())
log(*(of.sum() for of in states))
end(lm)
