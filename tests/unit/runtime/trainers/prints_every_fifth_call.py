# same: what is printed, and what a row says, depends on how often the loss was computed
kept["rows"] = []
class Own(Trainer):
    calls = 0
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        l, o = super().compute_loss(model, inputs, return_outputs=True, **k)
        self.calls += 1
        kept["rows"].append([self.calls, self.state.global_step, l.item()])
        if self.calls % 5 == 0:
            print(f"[{self.calls}] {l.item():.3f}")
        return (l, o) if return_outputs else l
go(Own(bert(), args(), train_dataset=cls_rows(64)))
