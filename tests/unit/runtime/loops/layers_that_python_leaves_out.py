# same: Python draws one number for all rows, by which a library leaves a layer out
import random
class Left(nn.Module):
    def forward(self, x):
        return x if self.training and random.random() < 0.3 else x.tanh()
Left.__module__ = "torch.nn"
class Net(Body):
    def __init__(self):
        super().__init__()
        self.left = Left()
    def forward(self, x):
        return self.body(self.left(x))
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
