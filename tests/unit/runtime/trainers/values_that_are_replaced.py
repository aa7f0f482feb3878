# same: a loss leaves figures in a named tuple, a long tuple, a frozenset, a date and a member of an Enum
import collections, datetime, enum
Stats = collections.namedtuple("Stats", "loss rows")
class Phase(enum.Enum):
    A, B = 1, 2
class Own(Trainer):
    stats, seen, day, counts, phase = None, frozenset(), None, (0,) * 12, Phase.A
    def compute_loss(self, model, inputs, *a, **k):
        loss = super().compute_loss(model, inputs, *a, **k)
        labels = inputs["labels"].tolist()
        self.stats, self.seen = Stats(round(loss.item(), 4), len(labels)), frozenset(labels)
        self.counts, self.day = tuple(map(labels.count, range(12))), datetime.date(2020, 1, 1 + sum(labels))
        self.phase = Phase.B if sum(labels) % 2 else Phase.A
        kept["left"] = str([*self.stats, *self.seen, *self.counts, self.day, self.phase, Phase.A.value, Phase.B.value])
        return loss
t = Own(bert(), args(), train_dataset=cls_rows(48))
go(t)
note(left=str([t.stats, t.seen, t.counts, t.day, t.phase, Phase.A.value, Phase.B.value]))
