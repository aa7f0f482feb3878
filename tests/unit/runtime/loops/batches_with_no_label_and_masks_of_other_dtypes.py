# same: batches with no label, and masks of other dtypes
class Net(Body):
    def forward(self, x, boxes, mask):
        counts, errors = mask.float(), self.body(x).pow(2).sum(1)
        known = boxes.ne(-1).float().sum(1)
        return (errors * counts).sum() / counts.sum(), (errors * known).sum() / known.sum().clamp(min=1)
model, data = ddp.parallelize(Net()), list(batches(x, torch.zeros(22, 2).long(), 0.5 + torch.rand(22)))
data[3] = data[3][0], torch.zeros(4, 0).long(), data[3][2]
data[4] = data[4][0], data[4][1], torch.tensor([1, 0, 1, 1])
train(model, data, lambda *batch: sum(model(*batch)))
end(model)
