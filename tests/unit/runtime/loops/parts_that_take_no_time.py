# whole: the parts of a model take less time than to exchange what they give, and are left as they were
class Pairs(Body):
    def forward(self, x):
        found = self.body(x)
        return (found @ found.T).square().mean()
model = ddp.parallelize(Pairs())
train(model, batches(*rows(40)), lambda x, y: model(x))
assert type(model.body) is nn.Sequential
end(model)
