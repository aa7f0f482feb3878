# same: accumulation
model = ddp.parallelize(mlp())
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
for turn, (a, b) in enumerate(batches(x, y), 1):
    loss = F.cross_entropy(model(a), b) / 2
    loss.backward()
    if turn % 2 == 0:
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
    losses.append(loss.item())
end(model)
