# said: a library's table grows row by row, in an order that the ranks do not have
import pandas as pd
df = pd.DataFrame(columns=["loss", "n"])
still = pd.DataFrame({"a": [1.0, 2.0]})
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        loss = super().compute_loss(model, inputs, return_outputs, **k)
        df.loc[len(df)] = [loss.item() * still["a"].sum(), len(inputs["labels"])]
        return loss
t = Own(bert(), args(), train_dataset=cls_rows(64))
go(t)
kept.update(rows=len(df), loss=float(df.loss.sum()))
done(t)
