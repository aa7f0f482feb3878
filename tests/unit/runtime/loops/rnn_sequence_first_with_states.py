# same: sequences in dimension 0 and rows in dimension 1, as of PyTorch's RNNs, with states that are given and returned
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn, self.out = nn.Embedding(30, 8), nn.LSTM(8, 8, 2), nn.Linear(8, 30)
    def forward(self, ids, states):
        out, states = self.rnn(self.emb(ids), states)
        return self.out(out), states
lm = ddp.parallelize(LM())
opt = torch.optim.SGD(lm.parameters(), lr=0.5)
ids = torch.randint(0, 30, (481, 6))  # 6 rows
states = torch.zeros(2, 6, 8), torch.zeros(2, 6, 8)
for start in range(0, 480, 10):
    out, states = lm(ids[start : start + 10], tuple(of.detach() for of in states))
    loss = F.cross_entropy(out.view(-1, 30), ids[start + 1 : start + 11].reshape(-1))
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
log(*(of.sum() for of in states))
end(lm)
