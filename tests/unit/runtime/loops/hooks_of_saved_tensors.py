# said: hooks of the notebook's see in some steps what backward() needs, and round it by the largest value
seen = []
def pack(t):
    seen.append(t.numel())
    scale = t.abs().max() / 127 if t.is_floating_point() else None
    return (t, None) if scale is None else ((t / scale).round(), scale)
def unpack(packed):
    return packed[0] if packed[1] is None else packed[0] * packed[1]
net = mlp()
ddp.parallelize(net)
def loss_of(x, y):
    if len(losses) % 3:
        return F.cross_entropy(net(x), y)
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return F.cross_entropy(net(x), y)
train(net, batches(x, y), loss_of)
log(torch.tensor(sum(seen)))
end(net)
