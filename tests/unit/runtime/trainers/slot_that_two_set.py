# said: micro-batches set slots of an array, at first each its own, later those of a step the same
slots = np.zeros(2000)
class Own(Trainer):
    def compute_loss(self, model, inputs, *a, **k):
        loss = super().compute_loss(model, inputs, *a, **k)
        own = int((inputs["input_ids"] * torch.arange(1, 9)).sum()) % 2000
        slots[0 if self.state.global_step > 2 else own] = loss.item()
        return loss
go(Own(bert(), args(), train_dataset=cls_rows(64)))
note(slots=slots.tolist())
