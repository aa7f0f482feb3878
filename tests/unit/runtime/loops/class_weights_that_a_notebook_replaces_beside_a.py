# whole: class weights that a notebook replaces, beside a count
class Net(Body):
    def __init__(self):
        super().__init__()
        self.register_buffer("weights", torch.ones(3))
    def forward(self, x, y):
        out = self.body(x)
        return F.cross_entropy(out, y, weight=self.weights), (out.argmax(1) == y).sum()
model, data = ddp.parallelize(Net()), batches(*rows(40))
train(model, data, lambda *batch: model(*batch)[0])
model.weights = torch.tensor([1.0, 4.0, 9.0])
train(model, data, lambda *batch: model(*batch)[0])
note(right=[model(*batch)[1].item() for batch in data])
end(model)
