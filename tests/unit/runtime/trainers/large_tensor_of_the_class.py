# said: a bank of features that a Trainer's class holds, too large for a figure
class Own(Trainer):
    bank = torch.zeros(40000, 16)
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        out = model(**inputs)
        self.bank[inputs["input_ids"][:, 0], :3] += out.logits.detach()
        return (out.loss, out) if return_outputs else out.loss
    def log(self, logs, *a, **k):
        super().log({**logs, "bank": float(self.bank.sum())}, *a, **k)
go(Own(bert(), args(), train_dataset=cls_rows(96)))
