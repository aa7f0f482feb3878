# same: a library that finds no process group keeps on each rank what only rank 0 would have
class Library(Trainer):
    def evaluation_loop(self, *a, **k):
        output = super().evaluation_loop(*a, **k)
        if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            output.metrics["eval_own"] = 1.0 - output.metrics["eval_loss"]
        return output
t = Library(bert(), args(max_steps=4, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2, load_best_model_at_end=True, metric_for_best_model="own"), train_dataset=cls_rows(40), eval_dataset=cls_rows(10))
go(t)
kept["best"] = t.state.best_metric
