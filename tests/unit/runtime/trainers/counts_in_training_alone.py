# same: tokens are counted where the model trains, as many in each micro-batch; evaluation reads the count
kept["rows"] = []
class Own(Trainer):
    tokens = calls = 0
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        l, o = super().compute_loss(model, inputs, return_outputs=True, **k)
        self.calls += 1
        if model.training:
            self.tokens += inputs["input_ids"].numel()
        kept["rows"].append([self.tokens, self.calls, model.training])
        return (l, o) if return_outputs else l
go(Own(bert(), args(eval_strategy="steps", eval_steps=2), train_dataset=cls_rows(64), eval_dataset=cls_rows(18)))
