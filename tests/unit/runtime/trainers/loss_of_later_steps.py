# same: what the first step shows of a loss does not hold in later ones
class Net(nn.Module):
    def __init__(self):
        super().__init__(); torch.manual_seed(4)
        self.first, self.head, self.lam = nn.Linear(6, 8), nn.Linear(8, 3), 0.0
        self.second = nn.Linear(4, 8)
    def forward(self, x=None, labels=None, y=None):
        z = torch.tanh(self.second(y) if x is None else self.first(x))
        if labels is None:
            return {"loss": (z - z.mean(0)).pow(2).mean(), "logits": z}
        return {"loss": nn.functional.cross_entropy(self.head(z), labels), "logits": self.head(z)}
class ByEpoch(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        losses = nn.functional.cross_entropy(model(**inputs)["logits"], inputs["labels"], reduction="none")
        count = int(len(losses) * (1 - 0.3 * int(self.state.epoch)))
        return losses.topk(max(count, 1)).values.mean()
class ByLogits(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        logits = model(**inputs)["logits"]
        sure = logits.softmax(-1).gather(1, inputs["labels"][:, None])[:, 0].detach()
        weights = (1 - sure) ** 2
        losses = nn.functional.cross_entropy(logits, inputs["labels"], reduction="none")
        return (losses * weights / weights.sum()).sum()
class ByTask(Trainer):
    sums = {}
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        loss = model(**inputs)["loss"]
        of = self.sums.setdefault(" ".join(sorted(inputs)), [0.0, 0])
        of[0] += loss.item(); of[1] += 1
        return loss
def rows(count):
    torch.manual_seed(9)
    return [{"x": torch.randn(6), "labels": torch.tensor(i % 3)} for i in range(count)]
def of_tasks(start, size):
    both = rows(64)
    return [both[i] if i < start or i // size % 2 else {"y": both[i]["x"][:4]} for i in range(60 // size * size)]
class InOrder(Trainer):
    def _get_train_sampler(self, *a):
        return torch.utils.data.SequentialSampler(self.train_dataset)
class ByTaskInOrder(InOrder, ByTask):
    pass
one = {"gradient_accumulation_steps": 1, "per_device_train_batch_size": 8, "remove_unused_columns": False}
go(ByEpoch(Net(), args(**one, num_train_epochs=3), train_dataset=rows(32)))
net = Net(); nn.init.zeros_(net.head.weight); nn.init.zeros_(net.head.bias)
go(ByLogits(net, args(**one, max_steps=8), train_dataset=rows(64)))
for start in (32, 0):
    go(InOrder(Net(), args(**one, max_steps=7), train_dataset=of_tasks(start, 8)))
several = {**one, "per_device_train_batch_size": 5, "gradient_accumulation_steps": 3}
go(ByTaskInOrder(Net(), args(**several, max_steps=4), train_dataset=of_tasks(0, 5)))
kept["sums"] = ByTask.sums
