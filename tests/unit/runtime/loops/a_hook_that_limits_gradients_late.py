# whole: a hook of a tensor limits the gradient of a batch, where it is large
class Net(Body):
    def forward(self, x):
        hidden = self.body[1](self.body[0](x))
        if hidden.requires_grad:
            hidden.register_hook(lambda grad: grad * (9.0 / grad.norm()).clamp(max=1.0))
        return self.body[2](hidden)
net = ddp.parallelize(Net())
train(net, batches(*rows(24)), lambda a, b: F.cross_entropy(net(a), b))
end(net)
