# same: an argument without rows is computed by another divided model
class Scaled(Body):
    def forward(self, x, scale):
        return self.body(x) * scale
encoder, net = ddp.parallelize(nn.Linear(5, 3)), ddp.parallelize(Scaled())
optimizer = torch.optim.SGD([*encoder.parameters(), *net.parameters()], lr=0.1)
x, y = rows(45)
train(net, batches(x, y, size=5), lambda a, b: F.cross_entropy(net(a, encoder(x[:9]).mean(0)), b), optimizer)
end(encoder, net)
