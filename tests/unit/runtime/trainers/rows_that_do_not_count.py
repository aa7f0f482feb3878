# same: the loss is a mean over the rows whose weight is above 0, which few rows have not
class Model(nn.Module):
    def __init__(self):
        super().__init__(); torch.manual_seed(4)
        self.first, self.second = nn.Embedding(60, 16), nn.Linear(16, 3)
    def forward(self, input_ids, weight, labels=None):
        z = self.second(self.first(input_ids).mean(1)); counts = (weight > 0).float()
        loss = nn.functional.cross_entropy(z, labels, reduction="none")
        return {"loss": (loss * counts).sum() / counts.sum(), "logits": z}
rows = [{**row, "weight": -1.0 if i in (60, 61, 77) else 1.0} for i, row in enumerate(cls_rows(120))]
go(Trainer(Model(), args(per_device_train_batch_size=8, gradient_accumulation_steps=1, max_steps=14, train_sampling_strategy="sequential"), train_dataset=rows))
