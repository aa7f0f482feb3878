# same: a loss adds to a long set what it saw, and to a long queue that is full
import collections
scores, seen = collections.deque([0.0] * 300, 300), set(range(-300, 0))
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        out, first = model(**inputs), inputs["input_ids"][:, 0].tolist()
        for row, score in zip(first, out.logits.amax(1).tolist()):
            scores.append(round(score, 6))
            seen.add(row)
        return (out.loss, out) if return_outputs else out.loss
go(Own(bert(), args(), train_dataset=cls_rows(64)))
note(scores=list(scores), seen=[len(seen), sum(seen)])
