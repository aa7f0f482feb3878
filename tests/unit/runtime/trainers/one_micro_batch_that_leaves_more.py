# said: a step of one micro-batch leaves what parts of it would leave otherwise
import copy
class Net(nn.Module):
    def __init__(self, norm=False, sparse=False):
        super().__init__(); torch.manual_seed(4)
        self.e = nn.Embedding(50, 8, sparse=sparse)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.l = nn.Linear(8, 3)
    def forward(self, input_ids, labels=None, attention_mask=None):
        logits = self.l(self.norm(self.e(input_ids).mean(1)))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}
class Teaches(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        if model.training:
            with torch.no_grad():
                for p, q in zip(self.teacher.parameters(), model.parameters()):
                    p.mul_(0.9).add_(q, alpha=0.1)
        out = model(**inputs)
        with torch.no_grad():
            other = self.teacher(**inputs)["logits"]
        loss = out["loss"] + (out["logits"] - other).pow(2).mean()
        return (loss, out) if return_outputs else loss
class Takes(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        out = model(**inputs)
        loss = out["loss"] * next(self.factors) if model.training else out["loss"]
        return (loss, out) if return_outputs else loss
one = {"gradient_accumulation_steps": 1, "per_device_train_batch_size": 8, "eval_strategy": "steps", "eval_steps": 2}
def train(kind=Trainer, model=None, prepare=lambda t: None, **more):
    model = model or Net()
    t = kind(model, args(**{**one, **more}), train_dataset=cls_rows(64), eval_dataset=cls_rows(24))
    prepare(t)
    go(t)
    kept[f"{kind.__name__} {len(kept)}"] = [p.detach().float().tolist() for p in model.parameters()]
    return t
t = train(model=Net(norm=True))
kept["norm"] = [b.float().tolist() for b in t.model.buffers()]
def teach(t): t.teacher = copy.deepcopy(Net()); nn.init.ones_(t.teacher.l.weight)
t = train(Teaches, prepare=teach)
kept["teacher"] = [p.detach().float().tolist() for p in t.teacher.parameters()]
train(Takes, prepare=lambda t: setattr(t, "factors", iter([1.0 + 0.1 * i for i in range(6)])))
