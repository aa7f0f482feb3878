# same: evaluation, best model, early stopping; epochs end within a step
t = Trainer(bert(), args(eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2, load_best_model_at_end=True, metric_for_best_model="accuracy", per_device_train_batch_size=3, max_steps=-1, num_train_epochs=2), train_dataset=cls_rows(50), eval_dataset=cls_rows(21),
  compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean()), "rows": len(p.label_ids)}, callbacks=[EarlyStoppingCallback(3)])
go(t)
