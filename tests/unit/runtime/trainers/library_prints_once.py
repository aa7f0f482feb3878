# same: a library says something in the first micro-batch that it computes, and something else in the second
import types
library = types.ModuleType("library")
exec("""
told = iter(["gradients are offloaded from now on", "two buffers from now on"])
def offload(x):
    for text in told:
        print(text)
        break
    return x
""", vars(library))
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        l, o = super().compute_loss(model, library.offload(inputs), return_outputs=True, **k)
        print(f"{self.state.global_step} {l.item():.3f}")
        return (l, o) if return_outputs else l
go(Own(bert(), args(), train_dataset=cls_rows(64)))
