# same: a loss of the notebook's own with class weights
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        y = inputs.pop("labels"); o = model(**inputs)
        l = nn.functional.cross_entropy(o.logits, y, weight=torch.tensor([1., 2., .5]))
        return (l, o) if return_outputs else l
go(Own(bert(), args(), train_dataset=cls_rows(64)))
