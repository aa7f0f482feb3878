# same: a loss leaves the shape of its rows, and keys in an order, in a dict
last = {}
class Own(Trainer):
    def compute_loss(self, model, inputs, *a, **k):
        loss = super().compute_loss(model, inputs, *a, **k)
        last["loss"] = round(loss.item(), 4)
        last["rows"] = inputs["input_ids"].shape
        return loss
go(Own(bert(), args(per_device_train_batch_size=8, gradient_accumulation_steps=1), train_dataset=cls_rows(48)))
note(last=str(last))
