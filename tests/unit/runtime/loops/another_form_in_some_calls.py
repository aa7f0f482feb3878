# same: another form in some calls
class Counts(Body):
    calls = 0
    def forward(self, x, y):
        self.calls += 1
        out = self.body(x)
        loss = F.cross_entropy(out, y, reduction="sum")
        return {"loss": loss} if self.calls % 5 else {"loss": loss, "out": out}
model = ddp.parallelize(Counts())
shapes = []
def loss_of(x, y):
    given = model(x, y)
    shapes.append(len(given.get("out", ())))
    return given["loss"] / 9
train(model, batches(x, y), loss_of)
note(shapes=shapes)
end(model)
