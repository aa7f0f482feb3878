# same: a callback keeps what only one process measures so
import os
class Watch(TrainerCallback):
    late = 0
    def on_step_end(self, args, state, control, model=None, **k):
        model.late = int(state.global_step > 4 + os.getpid() % 7)
class Net(nn.Module):
    def __init__(self):
        super().__init__(); torch.manual_seed(4); self.lin, self.late = nn.Linear(6, 2), 0
    def forward(self, x, labels=None):
        return {"loss": nn.functional.cross_entropy(self.lin(x), labels), "logits": self.lin(x)}
torch.manual_seed(8)
data = [{"x": torch.randn(6), "labels": torch.tensor(i % 2)} for i in range(64)]
go(Trainer(Net(), args(gradient_accumulation_steps=1, per_device_train_batch_size=4, max_steps=16, remove_unused_columns=False), train_dataset=data, callbacks=[Watch()]))
