# same: a library says something in the first micro-batch that it computes, and something else in the second
told = iter(["gradients are offloaded from now on", "two buffers from now on"])
def offload(x, told=told):
    for text in told:
        print(text)
        break
    return x
del told
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        l, o = super().compute_loss(model, offload(inputs), return_outputs=True, **k)
        print(f"{self.state.global_step} {l.item():.3f}")
        return (l, o) if return_outputs else l
go(Own(bert(), args(), train_dataset=cls_rows(64)))
