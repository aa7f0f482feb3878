# same: two Trainers one after the other, each with its best checkpoint
for fold in range(2):
    t = Trainer(bert(), args(output_dir=f"o{fold}", eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2, load_best_model_at_end=True), train_dataset=cls_rows(50), eval_dataset=cls_rows(9))
    go(t)
    kept[str(fold)] = t.state.best_model_checkpoint
