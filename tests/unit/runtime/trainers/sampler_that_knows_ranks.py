# same: a batch sampler that asks how many processes there are
class Batches(torch.utils.data.Sampler):
    def __init__(self, n, size):
        from accelerate.state import PartialState
        self.n, self.size, self.ranks = n, size, PartialState().num_processes
    def __iter__(self):
        order = torch.randperm(self.n, generator=torch.Generator().manual_seed(2)).tolist()
        yield from (order[i : i + self.size * self.ranks] for i in range(0, self.n, self.size * self.ranks))
    def __len__(self): return self.n // (self.size * self.ranks)
class Own(Trainer):
    def get_train_dataloader(self):
        rows = self.train_dataset
        return torch.utils.data.DataLoader(rows, batch_sampler=Batches(len(rows), 2), collate_fn=pad)
go(Own(llama(), args(), train_dataset=lm_rows(64), data_collator=pad))
