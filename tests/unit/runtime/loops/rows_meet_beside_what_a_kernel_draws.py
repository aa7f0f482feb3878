# whole: rows meet in a library's layer where it trains, beside an LSTM's dropout, which nobody sees
class Mixup(nn.Module):
    def forward(self, x):
        return 0.8 * x + 0.2 * x[torch.randperm(len(x))] if self.training else x
Mixup.__module__ = "a_library"
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.mixup, self.head = nn.LSTM(5, 6, 2, dropout=0.3), Mixup(), nn.Linear(6, 3)
    def forward(self, x):
        return self.head(self.mixup(self.lstm(x[None])[0][-1]))
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
