# same: forward() reads what was computed before, by the model itself and by another divided one, as attributes
class Keeps(Body):
    def remember(self, x):
        self.prototypes = torch.stack([part.mean(0) for part in self.body(x).chunk(3)])
    def forward(self, x):
        return -torch.cdist(self.body(x), self.prototypes) * self.scale
encoder, net = ddp.parallelize(nn.Linear(5, 3)), ddp.parallelize(Keeps())
optimizer = torch.optim.SGD([*encoder.parameters(), *net.parameters()], lr=0.1)
x, y = rows(45)
def loss_of(a, b):
    net.remember(x[:9])
    net.scale = encoder(x[9:18]).mean(0)
    first = F.cross_entropy(net(a), b)
    return first + F.cross_entropy(net(a + 1), b) + net.scale.sum() / 9
train(net, batches(x, y, size=5), loss_of, optimizer)
end(encoder, net)
