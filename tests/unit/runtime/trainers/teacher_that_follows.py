# said: each micro-batch moves a teacher towards the model, and its loss asks it
import copy
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        o = model(**inputs)
        with torch.no_grad():
            t = teacher(**inputs).logits
            for mine, theirs in zip(teacher.parameters(), model.parameters()):
                mine.data.mul_(0.95).add_(theirs.data, alpha=0.05)
        l = o.loss + nn.functional.mse_loss(o.logits, t)
        return (l, o) if return_outputs else l
m = bert()
teacher = copy.deepcopy(m)
go(Own(m, args(), train_dataset=cls_rows(64)))
kept["teacher"] = sum(p.sum().item() for p in teacher.parameters())
