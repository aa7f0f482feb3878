# same: a library says something once in a process, when it computes for the first time
def offload(x):
    if not hasattr(offload, "said"):
        offload.said = True
        print("gradients are offloaded from now on")
    return x
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        l, o = super().compute_loss(model, offload(inputs), return_outputs=True, **k)
        print(f"{self.state.global_step} {l.item():.3f}")
        return (l, o) if return_outputs else l
go(Own(bert(), args(), train_dataset=cls_rows(64)))
