# whole: an object of the notebook's own
import dataclasses
@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.unused = mlp(), nn.Linear(2, 2)
    def forward(self, x, y):
        logits = self.body(x)
        return Output(logits, F.cross_entropy(logits, y))
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: model(x, y).loss + model(x, y).logits.var(0).sum())
end(model)
