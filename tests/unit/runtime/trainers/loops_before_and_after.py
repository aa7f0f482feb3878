# same: a loop trains the model first, and another one after the Trainer
rows, model = cls_rows(48), bert()
losses = kept.setdefault("losses", [])
def fit(net):
    optimizer = torch.optim.SGD([{"params": list(net.parameters())}], lr=0.1)
    for i in range(0, 24, 8):
        loss = net(**torch.utils.data.default_collate(rows[i : i + 8])).loss
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        losses.append(loss.item())
ddp.parallelize_trained()
fit(model)
trainer = Trainer(model, args(), train_dataset=rows)
ddp_model = ddp.wrap_trainer(trainer)
result = trainer.train()
ddp.parallelize_trained()
fit(bert())
ddp.check_replicas()
done(trainer, result)
