# said: the least loss and the worst micro-batch so far
class Own(Trainer):
    least, worst = 1e9, (0.0, -1)
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        l, o = super().compute_loss(model, inputs, return_outputs=True, **k)
        self.least = min(self.least, l.item())
        if l.item() > self.worst[0]:
            self.worst = (l.item(), self.state.global_step)
        kept.update(least=self.least, worst=list(self.worst))
        return (l, o) if return_outputs else l
go(Own(bert(), args(), train_dataset=cls_rows(64)))
