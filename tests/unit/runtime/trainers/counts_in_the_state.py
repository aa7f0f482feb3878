# same: the loss counts tokens in the Trainer's state, and logs how many there are
class Own(Trainer):
    counted = ()
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        self.state.num_input_tokens_seen += inputs["attention_mask"].sum().item()
        self.counted = [self.state.num_input_tokens_seen]
        return super().compute_loss(model, inputs, return_outputs, **k)
    def log(self, logs, *a, **k):
        super().log({**logs, "counted": sum(self.counted)}, *a, **k)
go(Own(llama(), args(), train_dataset=lm_rows(64), data_collator=pad))
