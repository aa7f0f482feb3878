# same: dropout, on rows of unlike length; a sampler draws from the same generator at the beginning of each epoch
rows = [{**row, "labels": row["labels"][0] % 3} for row in lm_rows(24)]
def collate(batch):
    return {**pad([{**row, "labels": row["input_ids"]} for row in batch]), "labels": torch.tensor([row["labels"] for row in batch])}
class Drawing(Trainer):
    def _get_train_sampler(self, *a, **k):
        return torch.utils.data.WeightedRandomSampler([1.0] * 24, 24)
go(Drawing(bert(drop=0.1), args(max_steps=-1, num_train_epochs=3), train_dataset=rows, data_collator=collate))
kept["after"] = torch.rand(2).tolist()
