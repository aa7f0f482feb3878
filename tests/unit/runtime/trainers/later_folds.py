# same: the rows of each fold are divided, those of later ones too
rows = cls_rows(48)
counts = []
for fold in range(3):
    t = Trainer(bert(), args(per_device_train_batch_size=8, gradient_accumulation_steps=1, max_steps=4), train_dataset=rows)
    seen = []
    t.model.register_forward_pre_hook(lambda m, a, k: seen.append(len(k["input_ids"])), with_kwargs=True)
    go(t)
    counts.append(min(seen))
assert world_size == 1 or all(count < 8 for count in counts), counts
