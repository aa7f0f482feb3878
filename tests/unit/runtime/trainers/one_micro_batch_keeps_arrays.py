# same: rows are divided; the loss keeps its predictions as arrays, and counts rows
class Keeping(Trainer):
    rows, predictions = 0, []

    def compute_loss(self, model, inputs, *a, **k):
        out = model(**inputs)
        self.rows += len(inputs["labels"])
        self.predictions.append(out.logits.detach().argmax(-1).numpy())
        return out.loss


t = Keeping(bert(), args(gradient_accumulation_steps=1, per_device_train_batch_size=8), train_dataset=cls_rows(48))
go(t)
note(rows=t.rows, predictions=np.concatenate(t.predictions).tolist())
