# same: forward() writes files where a row of the batch is large, which rank 0 does for all
import os
import numpy
class Net(Body):
    def forward(self, x):
        if x.max() > 8 and ddp.is_main_process:
            os.makedirs("dump", exist_ok=True)
            numpy.save(f"dump/{len(os.listdir('dump'))}.npy", x.numpy())
            with open("log.txt", "a") as file:
                file.write("large\n")
        return self.body(x)
net = ddp.parallelize(Net())
x, y = rows(96)
x[35, 2] = x[70, 1] = 9.0
train(net, batches(x, y), lambda a, b: F.cross_entropy(net(a), b))
if ddp.is_main_process:
    with open("log.txt") as file:
        print(sorted(os.listdir("dump")), file.read().split())
end(net)
