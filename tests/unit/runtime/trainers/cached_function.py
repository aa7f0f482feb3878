# same: a loss calls a function that caches what it gives for each length, which the run says
import functools
@functools.cache
def weight(length):
    return 1 / length
class Own(Trainer):
    def compute_loss(self, model, inputs, *a, **k):
        return super().compute_loss(model, inputs, *a, **k) * weight(inputs["input_ids"].shape[1])
go(Own(llama(), args(), train_dataset=lm_rows(48), data_collator=pad))
