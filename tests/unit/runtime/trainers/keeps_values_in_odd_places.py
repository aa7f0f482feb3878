# same: a loss keeps figures in closures that share a variable, in slots, defaults, a class, a list's dict, an array, a context variable
import contextvars, dataclasses
class Slots:
    __slots__ = ("calls", "losses")
    def __init__(self):
        self.calls, self.losses = 0, []
@dataclasses.dataclass
class Book:
    rows: int = 0
    by_label: dict = dataclasses.field(default_factory=dict)
def counter():
    total = 0
    def add(n):
        nonlocal total
        total += n
    def read():
        return total
    return add, read
add, read = counter()
tokens = contextvars.ContextVar("tokens", default=0)
def smoothed(loss, seen=[]):
    seen.append(round(loss.item(), 6))
    smoothed.calls = getattr(smoothed, "calls", 0) + 1
    return loss
class Own(Trainer):
    of_class = {"micro-batches": 0}
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.slots, self.books, self.table = Slots(), [Book(), {"rows": 0}], np.zeros(3)
    def compute_loss(self, model, inputs, *a, **k):
        loss = smoothed(super().compute_loss(model, inputs, *a, **k))
        self.slots.calls += 1; self.slots.losses.append(round(loss.item(), 6))
        self.books[0].rows += len(inputs["labels"]); self.books[1]["rows"] += len(inputs["labels"])
        for label in inputs["labels"].tolist():
            self.books[0].by_label[label] = self.books[0].by_label.get(label, 0) + 1
        self.table += np.bincount(inputs["labels"], minlength=3)
        Own.of_class["micro-batches"] += 1
        add(len(inputs["labels"])); tokens.set(tokens.get() + inputs["input_ids"].numel())
        return loss
t = Own(bert(), args(), train_dataset=cls_rows(64))
go(t)
note(figures=[t.slots.calls, t.slots.losses, t.books[0].rows, t.books[1]["rows"], sorted(t.books[0].by_label.items()), t.table.tolist(),
    Own.of_class, read(), tokens.get(), smoothed.calls, smoothed.__defaults__[0]])
