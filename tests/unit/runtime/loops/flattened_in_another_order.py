# said: as many tokens as rows, flattened by rows, or by tokens where an attribute says so; changed in place
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(30, 8), nn.GRU(8, 8), nn.Linear(8, 30)
        self.by_row = False
    def forward(self, ids):
        out = self.out(self.rnn(self.emb(ids.t()))[0])
        return (out.transpose(0, 1) if self.by_row else out).reshape(-1, 30)
model = ddp.parallelize(LM())
opt = torch.optim.SGD(model.parameters(), lr=0.5)
for step in range(32):
    ids = torch.randint(0, 30, (4, 5))
    model.by_row = step % 8 > 4
    logits = model(ids[:, :4])
    logits /= 0.8
    labels = ids[:, 1:] if model.by_row else ids[:, 1:].t()
    loss = F.cross_entropy(logits, labels.reshape(-1))
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
end(model)
