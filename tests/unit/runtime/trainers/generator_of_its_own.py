# said: a loss draws from generators of its own, PyTorch's and NumPy's
dice, old = torch.Generator().manual_seed(3), np.random.RandomState(4)
class Own(Trainer):
    def compute_loss(self, model, inputs, *a, **k):
        return super().compute_loss(model, inputs, *a, **k) * (0.5 + torch.rand(1, generator=dice).item() + old.rand())
go(Own(bert(), args(), train_dataset=cls_rows(64)))
