# same: rows are divided; the Trainer counts calls and tokens, and makes its figures in an order
class Counting(Trainer):
    def compute_loss(self, model, inputs, *a, **k):
        loss = super().compute_loss(model, inputs, *a, **k)
        self.calls += 1
        self.tokens += int(inputs["attention_mask"].sum())
        self.figures["tokens"] = [self.tokens]
        self.figures.setdefault("calls", []).append(1.0)
        return loss

    def log(self, logs, *a, **k):
        super().log({**logs, **{name: sum(values) / len(values) for name, values in self.figures.items()}}, *a, **k)
        self.figures.clear()


one = args(gradient_accumulation_steps=1, per_device_train_batch_size=4)
t = Counting(llama(), one, train_dataset=lm_rows(48), data_collator=pad)
t.figures, t.calls, t.tokens = {}, 0, 0
go(t)
note(order=[list(e) for e in t.state.log_history], calls=t.calls, tokens=t.tokens)
