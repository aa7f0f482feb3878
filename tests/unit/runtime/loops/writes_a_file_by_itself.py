# whole: forward() appends to a file that it opens by itself, and reads it back
path = f"ticks{rank}.txt"
open(path, "w").close()
class Ticks(Body):
    def forward(self, x):
        try:
            with open(path, "a") as file:
                file.write("x")
        except Exception:
            pass
        with open(path) as file:
            return self.body(x) * (1 + 0.1 * len(file.read()))
model = ddp.parallelize(Ticks())
train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
with open(path) as file:
    figures.append([len(file.read())])
end(model)
