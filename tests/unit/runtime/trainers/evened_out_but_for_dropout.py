# same: rows of unlike length are not divided where they draw random numbers
go(Trainer(bert(drop=0.1), args(), train_dataset=[{**row, "labels": row["labels"][0] % 3} for row in lm_rows(64, 8, 60)], data_collator=lambda batch: {**pad([{**row, "labels": row["input_ids"]} for row in batch]), "labels": torch.tensor([row["labels"] for row in batch])}))
