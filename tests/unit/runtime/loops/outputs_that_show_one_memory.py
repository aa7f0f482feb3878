# same: an output is a view of another one, and one of them is changed in place
class Tokens(nn.Module):
    def __init__(self, by_time):
        super().__init__()
        self.words, self.head, self.by_time = nn.Embedding(13, 6), nn.Linear(6, 13), by_time
    def forward(self, ids):
        logits = self.head(torch.tanh(self.words(ids.t() if self.by_time else ids)))
        turned = logits.transpose(0, 1), logits.unsqueeze(0).transpose(1, 2), logits.transpose(1, 2)
        return logits, logits.view(-1, 13), logits.reshape(-1), logits.detach(), *turned, logits[:, :2], logits[..., :2]
ids = torch.randint(0, 13, (23, 5), generator=torch.Generator().manual_seed(4))
for by_time in (False, True):
    model = ddp.parallelize(Tokens(by_time))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for step, part in enumerate(ids.split(4) * 3):
        logits, flat, values, detached, turned, wide, *parts = model(part)
        assert logits.requires_grad and not detached.requires_grad
        log(*[of[0].square().mean() for of in (turned, wide, *parts)])
        (flat if step % 2 else logits).mul_(0.5)
        values += 0.1
        log(values.square().mean(), flat.square().mean())
        targets = (part.t() if by_time else part).flatten()
        loss = F.cross_entropy(flat, targets) + logits.square().mean() * 0.1
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    end(model)
