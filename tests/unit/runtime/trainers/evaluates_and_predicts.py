# same: evaluates before it trains, on two data sets; predicts afterwards
t = Trainer(bert(), args(eval_strategy="epoch", num_train_epochs=2, max_steps=-1), train_dataset=cls_rows(50), eval_dataset={"a": cls_rows(21), "b": cls_rows(7)}, compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())})
ddp.init_process_group()
ddp.prepare_trainer(t)
kept["before"] = {k: v for k, v in t.evaluate().items() if "loss" in k or "acc" in k}
go(t)
p = t.predict(cls_rows(13))
kept["p"] = [p.predictions.tolist(), {k: v for k, v in p.metrics.items() if "loss" in k or "acc" in k}]
done(t)
