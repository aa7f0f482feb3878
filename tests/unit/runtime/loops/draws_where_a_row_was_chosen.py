# whole: noise is drawn for all rows where random numbers have chosen any
class Net(Body):
    def forward(self, x):
        chosen = torch.rand(len(x), 1) < 0.2
        if chosen.any():
            x = x + chosen * torch.randn(len(x), 5)
        return self.body(x)
model = ddp.parallelize(Net())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
end(model)
