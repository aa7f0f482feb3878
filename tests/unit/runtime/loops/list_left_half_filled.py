# whole: a list that forward() makes anew and fills; rows lie where a part of them cannot be computed at first
class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.RNN(8, 8), nn.Linear(8, 2)
    def forward(self, x, state):
        self.weights = []
        for token in x.unbind(1):
            self.weights.append(token.softmax(-1))
            if len(self.weights) == 2:
                _, state = self.cell(token[None], state)
        return self.out(state[0])
model = ddp.parallelize(Decoder())
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    loss = F.cross_entropy(model(torch.randn(6, 4, 8), torch.zeros(1, 6, 8)), torch.tensor([0, 1] * 3))
    opt.zero_grad(); loss.backward(); opt.step()
    losses.append(loss.item())
log(sum(of.sum() for of in model.weights))
end(model)
