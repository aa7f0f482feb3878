# same: compute_loss_func with a closure that counts
def make():
    counts = {"calls": 0, "rows": []}
    def loss(outputs, labels, num_items_in_batch=None):
        counts["calls"] += 1; counts["rows"].append(len(labels))
        return nn.functional.cross_entropy(outputs.logits, labels, reduction="sum") / num_items_in_batch
    loss.counts = counts
    return loss
f = make(); kept["counts"] = f.counts
go(Trainer(bert(), args(), train_dataset=cls_rows(64), compute_loss_func=f))
