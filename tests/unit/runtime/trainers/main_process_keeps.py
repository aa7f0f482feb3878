# same: a Trainer keeps figures of training and of evaluation on the main process alone, as TRL's KTO does
kept["train"], kept["eval"] = [], []
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        l, o = super().compute_loss(model, inputs, return_outputs=True, **k)
        if self.accelerator.is_main_process:
            kept["train" if model.training else "eval"].append(l.item())
        return (l, o) if return_outputs else l
go(Own(bert(), args(eval_strategy="steps", eval_steps=3), train_dataset=cls_rows(64), eval_dataset=cls_rows(18)))
