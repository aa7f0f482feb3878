# same: the collator masks tokens at random
class Tok:
    pass
def mlm(rows):
    b = torch.stack([r["input_ids"] for r in rows]); m = torch.rand(b.shape) < 0.3; y = b.clone(); y[~m] = -100; b = b.clone(); b[m] = 3
    return {"input_ids": b, "labels": y, "attention_mask": torch.ones_like(b)}
go(Trainer(bert(BertForMaskedLM), args(remove_unused_columns=False), train_dataset=cls_rows(64), data_collator=mlm))
