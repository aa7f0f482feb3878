# whole: nested tensors and compressed rows have no rows that are put together
import warnings
warnings.simplefilter("ignore")
class Layout(nn.Module):
    def __init__(self, nested):
        super().__init__()
        self.body, self.nested = mlp(), nested
    def forward(self, x):
        z = self.body(x)
        return z, torch.nested.as_nested_tensor([*z]) if self.nested else (z.detach() > 0).float().to_sparse_csr()
models = [Layout(nested) for nested in (False, True)]
for model in models:
    ddp.parallelize(model)
    def loss_of(rows, labels):
        z, other = model(rows)
        loss = F.cross_entropy(z, labels)
        return loss + sum(part.square().mean() for part in other.unbind()) if model.nested else loss + other.to_dense().mean()
    train(model, batches(x, y), loss_of)
end(*models)
