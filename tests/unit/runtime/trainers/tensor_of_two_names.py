# same: what is added in place to a tensor that a class and an instance hold, and a dict and another
for size, steps in ((8, 1), (4, 4)):
    class Own(Trainer):
        seen = torch.zeros((), dtype=torch.long)
        def __init__(self, *a, **k):
            super().__init__(*a, **k)
            self.rows = torch.zeros(())
            self.meters = {"rows": self.rows}
        def compute_loss(self, model, inputs, return_outputs=False, **k):
            out = model(**inputs)
            self.seen += len(inputs["labels"])
            self.rows += len(inputs["labels"])
            return (out.loss, out) if return_outputs else out.loss
        def log(self, logs, *a, **k):
            super().log({**logs, "seen": int(self.seen), "rows": float(self.meters["rows"])}, *a, **k)
    t = Own(bert(), args(per_device_train_batch_size=size, gradient_accumulation_steps=steps), train_dataset=cls_rows(96))
    ddp.init_process_group()
    ddp.wrap_trainer(t)
    t.train()
    kept[size] = [[row.get("seen"), row.get("rows")] for row in t.state.log_history]
ddp.check_replicas(t.model)
done(t)
