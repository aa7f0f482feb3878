# same: callbacks at each micro-batch, a hook at each call of a layer
kept.update(sub=0, hooks=0)
class C(TrainerCallback):
    def on_substep_end(self, *a, **k): kept["sub"] += 1
m = bert()
def hook(*a): kept["hooks"] += 1
m.bert.register_forward_hook(hook)
go(Trainer(m, args(), train_dataset=cls_rows(64), callbacks=[C()]))
