# same: each epoch takes more rows
class Grows(torch.utils.data.Sampler):
    epoch = 0
    def set_epoch(self, epoch): self.epoch = epoch
    def __iter__(self): return iter(range(16 + 8 * self.epoch))
    def __len__(self): return 32
class Own(Trainer):
    def _get_train_sampler(self, *a, **k): return Grows()
go(Own(llama(), args(max_steps=8), train_dataset=lm_rows(64), data_collator=pad))
