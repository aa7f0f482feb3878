# said: a loss keeps the latest score of each row in a list that is long from the beginning, and what it saw in a long set
scores, seen = [0.0] * 400, set(range(-300, 0))
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        out, first = model(**inputs), inputs["input_ids"][:, 0].tolist()
        for row, score in zip(first, out.logits.amax(1).tolist()):
            scores[row % 400] = round(score, 6)
            seen.add(row)
        return (out.loss, out) if return_outputs else out.loss
go(Own(bert(), args(), train_dataset=cls_rows(64)))
note(scores=scores, seen=[len(seen), sum(seen)])
