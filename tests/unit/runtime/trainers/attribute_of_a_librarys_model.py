# same: a loss sets an attribute of a model whose class is a library's: of the step's last micro-batch, whole
class Own(Trainer):
    def compute_loss(self, model, inputs, *a, **k):
        loss = super().compute_loss(model, inputs, *a, **k)
        model.handles = [model.register_forward_hook(lambda *_: None)]  # as a library keeps its own
        model.handles[0].remove()
        model.last_loss, model.first = loss.detach(), inputs["input_ids"][0, 0].item()
        return loss
    def log(self, logs, *a, **k):
        super().log({**logs, "last": float(self.model.last_loss), "first": self.model.first}, *a, **k)
go(Own(bert(), args(), train_dataset=cls_rows(64)))
go(Own(bert(), args(per_device_train_batch_size=8, gradient_accumulation_steps=1), train_dataset=cls_rows(64)))
