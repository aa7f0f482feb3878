# said: a list grows by functions made in a function, which no rank can send to another
made = []
class Own(Trainer):
    def compute_loss(self, model, inputs, *a, **k):
        loss = super().compute_loss(model, inputs, *a, **k)
        value = loss.item()
        made.append(lambda: value)
        return loss
t = Own(bert(), args(), train_dataset=cls_rows(64))
go(t)
note(sum=sum(value() for value in made), made=len(made))
