# same: sparse embeddings
class Ratings(nn.Module):
    def __init__(self):
        super().__init__()
        self.user, self.item, self.bias = (nn.Embedding(9, size, sparse=True) for size in (4, 4, 1))
        self.tower = nn.Linear(4, 4)
    def forward(self, users, items):
        both = self.user(users) + self.item(items)  # the two gradients share their values
        return (self.tower(both) * both).sum(1) + self.bias(items).squeeze(1)
model = ddp.parallelize(Ratings())
sparse = [model.user.weight, model.item.weight, model.bias.weight]
for_sparse, for_dense = torch.optim.SparseAdam(sparse, lr=0.1), torch.optim.Adam(model.tower.parameters())
users, items, touched, gradients = y * 2 + 1, (x[:, 0] * 3).long() % 9, [], []
for u, i, target in batches(users[:19], items[:19], x[:19, 1]):
    for_sparse.zero_grad()
    for_dense.zero_grad()
    loss = 0.1 * F.mse_loss(model(u, i), target) + 0.1 * model.user(u).pow(2).mean()
    loss.backward()
    touched.append(len(model.user.weight.grad.coalesce().indices()[0]))
    gradients += [model.tower.weight.grad.tolist(), *(p.grad.to_dense().tolist() for p in sparse)]
    for_sparse.step()
    for_dense.step()
    losses.append(loss.item())
note(touched=touched, gradients=gradients)
end(model)
