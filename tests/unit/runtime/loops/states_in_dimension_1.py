# same: hidden states (layers, rows, values) of an encoder are an output, and an argument of the decoder
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.rnn = nn.Embedding(12, 8), nn.GRU(8, 8, batch_first=True)
    def forward(self, ids):
        return self.rnn(self.emb(ids))
class Decoder(Encoder):
    def __init__(self):
        super().__init__()
        self.out = nn.Linear(8, 12)
    def forward(self, seen, state, ids):
        return self.out(self.rnn(self.emb(ids), state)[0] + seen.mean(1, keepdim=True))
encoder, decoder = ddp.parallelize(Encoder()), ddp.parallelize(Decoder())
opt = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-2)
for ids in torch.randint(0, 12, (240, 5)).split(8):
    loss = F.cross_entropy(decoder(*encoder(ids), ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
end(encoder, decoder)
