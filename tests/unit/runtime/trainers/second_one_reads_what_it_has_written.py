# same: a Trainer writes on the main process what all ranks read, as TRL's DPO does, and another one has trained before
class Own(Trainer):
    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self.train_dataset = self.with_weights(self.train_dataset, "train")
    def with_weights(self, rows, name):
        file = f"{name}-{rank}.json"
        if self.accelerator.is_main_process:
            open(file, "w").write(json.dumps([i % 3 for i in range(len(rows))]))
        return [{**row, "weight": float(weight)} for row, weight in zip(rows, json.load(open(file)))]
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        weight = inputs.pop("weight")
        l, o = super().compute_loss(model, inputs, return_outputs=True, **k)
        return (l * (1 + weight.mean()), o) if return_outputs else l * (1 + weight.mean())
    def evaluate(self, eval_dataset=None, **k):
        if self.accelerator.is_main_process:
            open("evaluated", "a").write("once\n")
        return super().evaluate([{**row, "weight": 1.0} for row in eval_dataset], **k)
class Shows(TrainerCallback):
    def on_step_end(self, *given, **options):
        if own.accelerator.is_main_process:
            open("steps", "a").write("a step\n")
model = bert()
go(Trainer(model, args(max_steps=2), train_dataset=cls_rows(32)))
own = Own(model, args(remove_unused_columns=False, max_steps=2), train_dataset=cls_rows(32), callbacks=[Shows()])
go(own)
metrics = own.evaluate(cls_rows(16))
note(loss=metrics["eval_loss"], steps=open("steps").read(), evaluated=open("evaluated").read())
