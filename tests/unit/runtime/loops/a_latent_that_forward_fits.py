# same: forward() fits something to each row by an optimizer of its own, and rows do not divide evenly
class Fits(Body):
    def forward(self, x):
        hidden = self.body[1](self.body[0](x))
        latent = torch.zeros(len(x), 2, requires_grad=True)
        own = torch.optim.SGD([latent], lr=0.5)
        with torch.enable_grad():
            for _ in range(2):
                own.zero_grad()
                (hidden.detach()[:, :2] - latent).square().sum().backward()
                own.step()
        return self.body[2](hidden) + latent.detach().sum(1, keepdim=True)
net = ddp.parallelize(Fits())
x, y = rows(45)
train(net, batches(x, y, size=5), lambda a, b: F.cross_entropy(net(a), b))
end(net)
