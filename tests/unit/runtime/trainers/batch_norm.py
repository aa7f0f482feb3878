# said: running statistics see every micro-batch
class Net(nn.Module):
    def __init__(self):
        super().__init__(); self.a = nn.Linear(8, 16); self.b = nn.BatchNorm1d(16); self.c = nn.Linear(16, 3)
    def forward(self, input_ids=None, labels=None, attention_mask=None):
        o = self.c(self.b(self.a(input_ids.float() / 50)).relu())
        return {"loss": nn.functional.cross_entropy(o, labels), "logits": o}
go(Trainer(Net(), args(), train_dataset=cls_rows(64)))
