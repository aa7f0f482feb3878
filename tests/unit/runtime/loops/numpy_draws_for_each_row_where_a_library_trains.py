# whole: a library's layer masks values by NumPy's numbers where it trains, as some do with what is heard
import numpy as np
class Mask(nn.Module):
    def forward(self, x):
        return x * torch.from_numpy(np.random.rand(*x.shape) > 0.2) if self.training else x
Mask.__module__ = "torch.nn"
class Net(Body):
    def __init__(self):
        super().__init__()
        self.mask = Mask()
    def forward(self, x):
        return self.body(self.mask(x))
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
