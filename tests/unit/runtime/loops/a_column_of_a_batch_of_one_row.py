# same or said: a column of a batch of one row
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)
    def forward(self, x, weight):
        return self.layer(x) * weight.unsqueeze(1)
model = ddp.parallelize(Net())
both = torch.stack([y, y + 1], dim=1)
rows = [(x[i : i + 1], both[i : i + 1]) for i in range(6)]
train(model, rows, lambda x, y: F.cross_entropy(model(x, y[:, 1]), y[:, 0]))
end(model)
