# same: Python draws one number for all rows, which leaves a layer out
import random
class Net(Body):
    def forward(self, x):
        return self.body(x) if self.training and random.random() < 0.3 else self.body(x.tanh())
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
