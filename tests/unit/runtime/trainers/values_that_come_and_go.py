# said: a loss deletes an attribute in every other call, and leaves what it was given where a number was
class Own(Trainer):
    calls, last, raw = 0, None, bytearray()
    def compute_loss(self, model, inputs, *a, **k):
        self.calls += 1
        self.raw.append(self.calls)
        if hasattr(self, "odd"):
            del self.odd
        else:
            self.odd = self.calls
        self.last = inputs if self.calls > 8 else self.calls
        return super().compute_loss(model, inputs, *a, **k)
t = Own(bert(), args(), train_dataset=cls_rows(48))
go(t)
note(left=[t.calls, hasattr(t, "odd"), list(t.raw), type(t.last).__name__])
