# said: an embedding that a whole and a divided model share; then with backward() of both, and of one alone, in a step
class Encoder(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.embedding, self.rnn, self.mean = embedding, nn.GRU(8, 8, batch_first=True), None
    def forward(self, ids):
        out, _ = self.rnn(self.embedding(ids))
        self.mean = out.detach().mean(1)
        return out[:, -1]
class Decoder(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.embedding, self.out = embedding, nn.Linear(16, 30)
    def forward(self, ids, state):
        return self.out(torch.cat([self.embedding(ids), state], 1))
embedding = nn.Embedding(30, 8)
encoder, decoder = ddp.parallelize(Encoder(embedding)), ddp.parallelize(Decoder(embedding))
opt = torch.optim.SGD([*encoder.parameters(), *decoder.out.parameters()], lr=0.5)
for step in range(12):
    ids = torch.randint(0, 30, (6, 5))
    state, loss = encoder(ids), 0.0
    for token in range(4):
        loss = loss + F.cross_entropy(decoder(ids[:, token], state), ids[:, token + 1])
    loss.backward(); opt.step(); opt.zero_grad()
    losses.append(loss.item())
for micro_batch in range(32):
    ids = torch.randint(0, 30, (6, 5))
    loss = F.cross_entropy(decoder(ids[:, 0], encoder(ids)), ids[:, 1])
    loss.backward()
    encoder(ids).pow(2).mean().backward()
    losses.append(loss.item())
    if micro_batch % 4 == 3:
        opt.step(); opt.zero_grad()
end(encoder)
