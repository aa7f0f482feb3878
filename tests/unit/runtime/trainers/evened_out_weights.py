# same: a loss with class weights and rows of unlike length, none of which is divided
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        y = inputs.pop("labels"); o = model(**inputs)
        return nn.functional.cross_entropy(o.logits[:, :-1].flatten(0, 1), y[:, 1:].flatten(), weight=torch.linspace(0.2, 2, 50))
go(Own(llama(), args(per_device_train_batch_size=4), train_dataset=lm_rows(64, 8, 120), data_collator=pad))
