# same: an overridden training_step keeps what it sees
from collections import deque
kept["last"] = deque(maxlen=5)
class Own(Trainer):
    seen = 0
    def training_step(self, model, inputs, *a, **k):
        loss = super().training_step(model, inputs, *a, **k)
        self.seen += len(inputs["labels"]); kept["last"].append(round(loss.item(), 6)); kept["seen"] = self.seen
        return loss
go(Own(bert(), args(), train_dataset=cls_rows(64)))
kept["last"] = list(kept["last"])
