# said: a loss takes a batch without labels from an iterator of its own
class Own(Trainer):
    def compute_loss(self, model, inputs, *a, **k):
        more = next(unlabelled)
        return super().compute_loss(model, inputs, *a, **k) + 0.1 * model(input_ids=more["input_ids"]).logits.square().mean()
unlabelled = iter(torch.utils.data.DataLoader([{"input_ids": row["input_ids"]} for row in cls_rows(200)], batch_size=3))
go(Own(bert(), args(), train_dataset=cls_rows(64)))
