# same: a number that is returned later, and first
class Heads(Body):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(5, 3)
    def forward(self, x):
        more = self.head(x).pow(2).mean()
        return (more, self.body(x)) if len(losses) > 3 else (self.body(x), 0 * more)
model = ddp.parallelize(Heads())
def loss_of(x, y):
    one, other = model(x)
    return one + F.cross_entropy(other, y) if other.ndim else F.cross_entropy(one, y) + other
train(model, batches(x, y), loss_of)
note(same=model(x)[0].item())
end(model)
