# same: fewer rows are tried; a batch that one of its rows stops is left out, in training and without gradients
ddp._Split.worth = 0.0
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.o = nn.Embedding(20, 8), nn.Linear(8, 2)
    def forward(self, x):
        return self.o(self.e(x).mean(1))
net = ddp.parallelize(Net())
opt = torch.optim.SGD(net.parameters(), lr=0.1)
words = torch.arange(24 * 8 * 5).view(24, 8, 5) % 20
words[21, 7, 1] = words[22, 0, 1] = 21
def evaluate():
    found = []
    for batch in words:
        try:
            with torch.no_grad():
                found.append(net(batch).sum().item())
        except IndexError:
            found.append(-1.0)
    return found
size = 8
while True:
    try:
        net(words[21, :size]).sum()
        break
    except IndexError:
        size //= 2
figures.append(size)
for step, batch in enumerate(words):
    try:
        out = net(batch)
    except IndexError:
        losses.append(-1.0)
        continue
    loss = out.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    losses.append(loss.item())
    if step % 8 == 0:
        figures.append(evaluate())
end(net)
