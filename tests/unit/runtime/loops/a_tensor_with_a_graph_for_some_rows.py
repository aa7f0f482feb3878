# whole: forward() reads what another divided model has computed, for those of its rows that are large
class Keeps(Body):
    def forward(self, x):
        found, large = self.body(x), x[:, :1] > 1
        return torch.where(large, found * self.scale, found) if bool(large.any()) else found
encoder, net = ddp.parallelize(nn.Linear(5, 3)), ddp.parallelize(Keeps())
optimizer = torch.optim.SGD([*encoder.parameters(), *net.parameters()], lr=0.1)
x, y = rows(44)
x = x.clamp(-1, 1)
x[::4, 0] = 2
def loss_of(a, b):
    net.scale = encoder(x[9:18]).mean(0)
    return F.cross_entropy(net(a), b) + net.scale.square().sum()
train(net, batches(x, y), loss_of, optimizer)
end(encoder, net)
