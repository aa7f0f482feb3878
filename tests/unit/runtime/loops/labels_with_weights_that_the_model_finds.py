# whole: labels with weights that the model finds
class Net(Body):
    def forward(self, x, y):
        return F.cross_entropy(self.body(x), 2 - y, weight=torch.tensor([7.0, 1.0, 1.0]))
x, y = rows(40)
y[:16] %= 2
model = ddp.parallelize(Net())
train(model, batches(x, y), model)
end(model)
