# same: the rows of a batch meet in rare batches, or once a callback has set a switch
class Data(torch.utils.data.Dataset):
    reads = 0
    def __len__(self): return 160
    def __getitem__(self, i):
        Data.reads += 1  # no rank may read a row that one process does not read
        return {"x": torch.sin(torch.arange(6) * (i + 1.0)), "labels": torch.tensor(2 if i in (90, 121, 155) else i % 2)}
class Model(nn.Module):
    def __init__(self):
        super().__init__(); torch.manual_seed(4)
        self.first, self.second, self.lam = nn.Linear(6, 8), nn.Linear(8, 3), 0.0
    def forward(self, x, labels=None):
        z = torch.tanh(self.first(x)); loss = nn.functional.cross_entropy(self.second(z), labels)
        if self.rare and (labels == 2).any():
            loss = 3 * loss
        if self.lam:
            loss = loss + self.lam * (z - z.mean(0)).pow(2).mean()
        return {"loss": loss, "logits": z}
class Switch(TrainerCallback):
    def on_step_begin(self, args, state, control, model=None, **k):
        model.lam = 0.5 if state.global_step >= 13 and not model.rare else 0.0
for Model.rare in (True, False):
    go(Trainer(Model(), args(per_device_train_batch_size=8, gradient_accumulation_steps=1, max_steps=20, remove_unused_columns=False), train_dataset=Data(), callbacks=[Switch()]))
    kept["reads"] = Data.reads
