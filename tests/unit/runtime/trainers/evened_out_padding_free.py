# same: sequences of micro-batches without padding are divided where that evens out the ranks
def flat(rows):
    ids = [torch.tensor(row["input_ids"]) for row in rows]
    places = torch.cat([torch.arange(len(of)) for of in ids])[None]
    labels = torch.cat(ids)[None].clone()
    labels[places == 0] = -100
    return {"input_ids": torch.cat(ids)[None], "position_ids": places, "labels": labels}
go(Trainer(llama(), args(per_device_train_batch_size=3), train_dataset=lm_rows(96, 8, 120), data_collator=flat))
