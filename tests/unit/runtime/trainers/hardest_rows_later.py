# same: a callback lets the loss be the mean over the hardest rows, which is right by chance in some batches
class Own(Trainer):
    share = 1.0
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        loss = nn.functional.cross_entropy(model(**{k: v for k, v in inputs.items() if k != "labels"}).logits, inputs["labels"], reduction="none")
        return loss.topk(int(self.share * len(loss))).values.mean()
class Switch(TrainerCallback):
    def on_step_begin(self, args, state, control, **k):
        t.share = 0.5 if state.global_step > 8 else 1.0
for seed in (3, 4, 5):
    t = Own(bert(), args(per_device_train_batch_size=16, gradient_accumulation_steps=1, max_steps=12, seed=seed), train_dataset=cls_rows(240), callbacks=[Switch()])
    go(t)
