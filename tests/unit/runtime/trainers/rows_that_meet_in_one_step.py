# same: the rows of a batch meet in one step, which the loss counts or the Trainer
class Own(Trainer):
    calls = 0
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        self.calls += 1
        z = model(**inputs).logits
        if self.calls == 7 or self.state.global_step == 11:
            z = z - z.mean(0)
        return nn.functional.cross_entropy(z, inputs["labels"])
go(Own(bert(), args(per_device_train_batch_size=8, gradient_accumulation_steps=1, max_steps=14), train_dataset=cls_rows(120)))
