# same: a method is set on the Trainer, not in a class
import types
calls = []
def step(self, model, inputs, *a, **k):
    calls.append(len(inputs["labels"]))
    return Trainer.training_step(self, model, inputs, *a, **k)
t = Trainer(bert(), args(), train_dataset=cls_rows(64))
t.training_step = types.MethodType(step, t)
log = t.log
t.log = lambda logs, *a, **k: log({**logs, "calls": len(calls)}, *a, **k)
go(t)
assert ddp._run.checks["checked"] or not ddp._run.meets, "each rank trains by itself"
