# same: compute_loss fills a list, adds to a number, sets another, logs and prints
history = []; kept["history"] = history; running = {"loss": 0.0, "last": 0.0, "n": 0}; kept["running"] = running
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        y = inputs.pop("labels"); o = model(**inputs)
        l = nn.functional.cross_entropy(o.logits, y)
        history.append(l.item()); running["loss"] += l.item(); running["last"] = l.item(); running["n"] += 1
        self.log({"mine": l.item()})
        print("loss", round(l.item(), 4))
        return (l, o) if return_outputs else l
go(Own(bert(), args(), train_dataset=cls_rows(64)))
