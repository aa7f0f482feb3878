# near: how many random numbers a micro-batch draws depends on those before
class Mixup(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        y = inputs.pop("labels")
        e = model.bert.embeddings.word_embeddings(inputs["input_ids"])
        w, order = np.random.beta(0.4, 0.4), torch.randperm(len(y))
        o = model(inputs_embeds=w * e + (1 - w) * e[order], attention_mask=inputs["attention_mask"])
        loss = nn.functional.cross_entropy
        l = w * loss(o.logits, y) + (1 - w) * loss(o.logits, y[order])
        return (l, o) if return_outputs else l
go(Mixup(bert(), args(), train_dataset=cls_rows(64)))
