# whole: class weights in the model, of a class that comes late
class Net(Body):
    def __init__(self):
        super().__init__()
        self.loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, 7.0]), label_smoothing=0.1)
    def forward(self, x, y):
        return self.loss(self.body(x), y)
x, y = rows(40)
y[:16] %= 2
model = ddp.parallelize(Net())
train(model, batches(x, y), model)
end(model)
