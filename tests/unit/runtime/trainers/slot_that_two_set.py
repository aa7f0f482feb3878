# said: micro-batches set slots of an array, at first each its own, then two of a step the same
slots = np.zeros(200)
class Own(Trainer):
    def compute_loss(self, model, inputs, *a, **k):
        loss = super().compute_loss(model, inputs, *a, **k)
        slots[self.state.global_step * 8 + int(inputs["input_ids"].sum()) % (3 if self.state.global_step > 2 else 8)] = loss.item()
        return loss
go(Own(bert(), args(), train_dataset=cls_rows(64)))
note(slots=slots.tolist())
