# same: steps, evaluations and predictions that fail for some rows, on the rank that computes them, and are handled
class Odd(Trainer):
    fails = None

    def compute_loss(self, model, inputs, *a, **k):
        loss = super().compute_loss(model, inputs, *a, **k)
        if self.fails is not None and (inputs["labels"] == 2).sum() > self.fails:
            raise ValueError("too many of one label")
        return loss


def steps(count, size, fails, times=1):
    t = Odd(bert(), args(gradient_accumulation_steps=count, per_device_train_batch_size=size), train_dataset=cls_rows(64))
    t.fails = fails
    ddp.init_process_group()
    ddp.wrap_trainer(t)
    for _ in range(times):
        try:
            t.train()
        except ValueError as error:
            print(count, size, fails, t.state.global_step, error)
            t.fails = None
    return t


steps(1, 8, -1, 2)  # in the first step, which rank 0 computes whole
steps(1, 8, 3)
steps(4, 2, 1)
t = steps(2, 4, None)
for fails in (1, None, 0, None):
    t.fails = fails
    for rows in (cls_rows(24), cls_rows(16)):
        try:
            print(fails, round(t.evaluate(rows)["eval_loss"], 5), t.predict(rows).predictions.shape)
        except ValueError as error:
            print(fails, error)
t.fails = None
go(t)
