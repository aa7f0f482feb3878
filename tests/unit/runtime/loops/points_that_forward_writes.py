# whole: forward() writes points about the rows by a writer like TensorBoard's
import os, sys, types
class Writer:
    def __init__(self, path):
        self.file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    def add_scalar(self, name, value, step):
        os.write(self.file, f"{step}:{value}\n".encode())
sys.modules["points"] = points = types.SimpleNamespace(Writer=Writer)
ddp.event_writer("points.Writer")
writer = points.Writer("points" if ddp.is_main_process else os.devnull)
class Net(Body):
    def forward(self, x):
        writer.add_scalar("rows", len(x), len(losses))
        return self.body(x)
net = ddp.parallelize(Net())
train(net, batches(*rows(26)), lambda a, b: F.cross_entropy(net(a), b))
if ddp.is_main_process:
    with open("points") as file:
        print(file.read().split())
end(net)
