# same: two groups of parameters, clipping, warm-up, a frozen layer
m = bert()
m.bert.embeddings.requires_grad_(False)
head = {id(p) for p in m.classifier.parameters()}
opt = torch.optim.AdamW([{"params": [p for p in m.parameters() if p.requires_grad and id(p) not in head]}, {"params": m.classifier.parameters(), "lr": 5e-2}], lr=1e-3)
go(Trainer(m, args(max_grad_norm=0.1, warmup_steps=2), train_dataset=cls_rows(64), optimizers=(opt, None)))
