# said: a training step looks at the gradients so far
class Own(Trainer):
    def training_step(self, model, inputs, *a, **k):
        inputs = self._prepare_inputs(inputs)
        l = super().training_step(model, inputs, *a, **k)
        e = model.bert.embeddings.word_embeddings.weight
        old = e.data.clone(); e.data.add_(0.1 * e.grad / (e.grad.norm() + 1e-8))
        l2 = super().training_step(model, inputs, *a, **k)
        e.data.copy_(old)
        return l
go(Own(bert(), args(), train_dataset=cls_rows(64)))
