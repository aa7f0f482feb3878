# whole: forward() draws one mask for all rows, and puts the state of the generators back
class Masked(Body):
    def forward(self, x):
        h = torch.tanh(self.body[0](x))
        with torch.random.fork_rng():
            mask = torch.rand(8) > 0.1
        return self.body[2](h * mask)
model = ddp.parallelize(Masked())
shuffled = [(x[rows], y[rows]) for rows in (torch.randint(0, 22, (4,)) for _ in range(8))]
train(model, shuffled, lambda x, y: F.cross_entropy(model(x), y) * (0.5 + torch.rand([])))
end(model)
