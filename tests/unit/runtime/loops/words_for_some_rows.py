# same: words for some rows
class Net(TwoTargets):
    def forward(self, x, words):
        h = self.hidden(x)
        return [self.one(h), self.two(h)] if "b" in words else [self.one(h)]
model = ddp.parallelize(Net())
x, y, t = targets()
words = list("bbbb" * 3 + "abaa" + "aaaa" + "aaab" + "bbbb")
data = [(*batch, words[4 * number : 4 * number + 4]) for number, batch in enumerate(batches(x, y))]
train(model, data, lambda x, y, words: sum((out.squeeze(-1) - y).pow(2).mean() for out in model(x, words)))
end(model)
