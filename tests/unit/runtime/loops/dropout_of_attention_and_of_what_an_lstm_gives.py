# same: dropout of attention, and of what an LSTM gives
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 8, batch_first=True), nn.Linear(8, 3)
        self.attend = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
    def forward(self, x):
        hidden = F.dropout(self.lstm(x)[0], 0.2, self.training)
        return self.head(self.attend(hidden).mean(1))
model = ddp.parallelize(Net())
train(model, batches(torch.randn(22, 4, 5), y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
