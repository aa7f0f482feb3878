# same: features of a frozen network with batch norms, in its two modes
ddp._Split.worth = 0.0
backbone, head = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 8)), ddp.parallelize(mlp(8))
x, y = rows(240)
with torch.no_grad():
    backbone(x[:6])  # in training mode, which the statistics keep
backbone.eval()
def loss_of(a, b):
    with torch.no_grad():
        features = backbone(a)
    return F.cross_entropy(head(features), b)
train(head, batches(x, y, size=6), loss_of)
with torch.no_grad():
    log(backbone[1].running_mean.sum(), backbone(x[:6]).sum())
end(head, backbone)
