# said: what an object of the notebook's own notes of each sample in a large array
class Seen:
    def __init__(self):
        self.of_sample = {"count": np.zeros(100_000, dtype=np.int64)}
seen = Seen()
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        np.add.at(seen.of_sample["count"], inputs["input_ids"][:, 0].numpy(), 1)
        out = model(**inputs)
        return (out.loss, out) if return_outputs else out.loss
    def log(self, logs, *a, **k):
        super().log({**logs, "seen": int(seen.of_sample["count"].sum())}, *a, **k)
sizes = dict(per_device_train_batch_size=8, gradient_accumulation_steps=1)
go(Own(bert(), args(**sizes), train_dataset=cls_rows(96)))
