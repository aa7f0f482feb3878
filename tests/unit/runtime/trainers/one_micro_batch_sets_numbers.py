# same: rows of a micro-batch are divided, and numbers that each one sets or adds are those of the whole
class Own(Trainer):
    last, rows = 0.0, 0
    def compute_loss(self, model, inputs, *a, **k):
        loss = super().compute_loss(model, inputs, *a, **k)
        self.last, self.rows, self.kind = loss.item(), len(inputs["labels"]), "cls"
        self.parts = {"ones": (inputs["labels"] == 1).sum().item(), "half": loss.item() / 2}
        return loss
    def log(self, logs, *a, **k):
        super().log({**logs, "last": self.last, "rows": self.rows, **self.parts}, *a, **k)
go(Own(bert(), args(per_device_train_batch_size=8, gradient_accumulation_steps=1), train_dataset=cls_rows(64)))
class Counts(Trainer):
    rare = 0
    def compute_loss(self, model, inputs, *a, **k):
        self.rare += (inputs["input_ids"][:, 1] == 7).sum().item()  # mostly 0 in the rows of a rank
        return super().compute_loss(model, inputs, *a, **k)
    def log(self, logs, *a, **k):
        super().log({**logs, "rare": self.rare}, *a, **k)
go(Counts(bert(), args(per_device_train_batch_size=8, gradient_accumulation_steps=1, max_steps=24), train_dataset=cls_rows(640)))
