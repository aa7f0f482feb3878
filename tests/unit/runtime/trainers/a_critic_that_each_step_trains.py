# said: a step trains a critic beside the model, which the evaluation, divided over the ranks, reads
class Adversary:
    def __init__(self):
        self.nets = {"critic": nn.Linear(3, 1)}
        self.optimizer = torch.optim.Adam(self.nets["critic"].parameters(), 0.3)
adversary = Adversary()
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        out, critic = model(**inputs), adversary.nets["critic"]
        if model.training:
            adversary.optimizer.zero_grad()
            (critic(out.logits.detach()) - 1).pow(2).mean().backward()
            adversary.optimizer.step()
        loss = out.loss + 0.1 * critic(out.logits).mean()
        return (loss, out) if return_outputs else loss
settings = dict(max_steps=4, gradient_accumulation_steps=1, eval_strategy="steps", eval_steps=2)
go(Own(bert(), args(**settings), train_dataset=cls_rows(24), eval_dataset=cls_rows(12)))
note(critic=[p.detach() for p in adversary.nets["critic"].parameters()])
