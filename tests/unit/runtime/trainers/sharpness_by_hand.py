# same: a training step moves the parameters, and back but for rounding
class Own(Trainer):
    def training_step(self, model, inputs, *a, **k):
        model.train(); inputs = self._prepare_inputs(inputs)
        ps = [p for p in model.parameters() if p.requires_grad]
        g = torch.autograd.grad(self.compute_loss(model, inputs), ps, allow_unused=True)
        norm = torch.sqrt(sum((x ** 2).sum() for x in g if x is not None)) + 1e-12
        eps = [None if x is None else 0.05 * x / norm for x in g]
        for sign in (1, -1):
            with torch.no_grad():
                for p, e in zip(ps, eps):
                    if e is not None:
                        p.add_(sign * e) if self.plainly else p.data.add_(sign * e)
            if sign == 1:
                loss = self.compute_loss(model, inputs)
                self.accelerator.backward(loss / self.args.gradient_accumulation_steps)
        return loss.detach() / self.args.gradient_accumulation_steps
for Own.plainly in (True, False):
    go(Own(bert(), args(), train_dataset=cls_rows(64)))
