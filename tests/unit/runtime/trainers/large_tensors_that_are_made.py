# same: large tensors that a model makes once, and that are kept for each sample, change nothing that is read later
teacher, given = bert(), {}
class Masked(BertForSequenceClassification):
    causal = None
    def forward(self, input_ids=None, attention_mask=None, labels=None):
        if self.causal is None:
            self.causal = torch.ones(300, 300).tril()
        return super().forward(input_ids, attention_mask, labels=labels)
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        for ids in inputs["input_ids"]:
            if (key := str(ids.tolist())) not in given:
                with torch.no_grad():
                    given[key] = teacher(ids[None]).logits.repeat(30_000, 1)
        out = model(**inputs)
        wanted = torch.stack([given[str(ids.tolist())][0] for ids in inputs["input_ids"]])
        loss = out.loss + (out.logits - wanted).square().mean()
        return (loss, out) if return_outputs else loss
go(Own(bert(Masked), args(), train_dataset=cls_rows(48)))
