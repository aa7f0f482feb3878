# said: the second Trainer moves an embedding within a step; the first one has been checked, and does not
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.l = nn.Embedding(12, 8), nn.Linear(8, 3)
    def forward(self, ids, labels=None):
        logits = self.l(torch.tanh(self.e(ids)).mean(1))
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}
class Adversarial(Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        model.train()
        loss = self.compute_loss(model, inputs) / 2
        self.accelerator.backward(loss)
        p = model.e.weight
        moved = 0.5 * p.grad / (p.grad.norm() + 1e-12)
        p.data.add_(moved)
        self.accelerator.backward(self.compute_loss(model, inputs) / 2)
        p.data.sub_(moved)
        return loss.detach()
rows = [{"ids": torch.randint(0, 12, (5,)), "labels": i % 3} for i in range(48)]
net = Net()
go(Trainer(net, args(gradient_accumulation_steps=2, max_steps=4), train_dataset=rows))
go(Adversarial(net, args(gradient_accumulation_steps=2, max_steps=4), train_dataset=rows))
