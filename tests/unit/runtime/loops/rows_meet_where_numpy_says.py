# whole: NumPy draws one number for all rows, and in one branch rows meet
import numpy as np
class Net(Body):
    def forward(self, x):
        out = self.body(x)
        return out - out.mean(0) if np.random.rand() < 0.3 else out
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
