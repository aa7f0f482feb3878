# same: the first of its checkpoints is the best, and they lie in a temporary folder
import tempfile
with tempfile.TemporaryDirectory() as folder:
    own = args(output_dir=folder, max_steps=-1, num_train_epochs=3, eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="first", greater_is_better=False)
    t = Trainer(bert(), own, train_dataset=cls_rows(32), eval_dataset=cls_rows(16), compute_metrics=lambda p: {"first": t.state.global_step})
    go(t)
    kept["best"] = t.state.best_global_step
