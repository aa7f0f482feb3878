# same: forward() writes, prints and logs for a row of another rank, in steps that are not compared
import logging, os
logging.basicConfig(filename="log.txt" if ddp.is_main_process else os.devnull, format="%(message)s")
class Net(Body):
    def __init__(self):
        super().__init__()
        self.large = 0
    def forward(self, x):
        if x.max() > 8:
            self.large += 1
            print("large", self.large)
            logging.warning("large %d", self.large)
            try:
                if ddp.is_main_process:
                    with open("cache-large.txt", "a") as file:
                        file.write(f"{len(x)} rows\n")
            except:
                pass
        return self.body(x)
net = ddp.parallelize(Net())
x, y = rows(96)
x[35, 2] = x[43, 1] = x[70, 1] = x[72, 1] = 9.0
train(net, batches(x, y), lambda a, b: F.cross_entropy(net(a), b))
if ddp.is_main_process:
    for name in ("cache-large.txt", "log.txt"):
        with open(name) as file:
            print(file.read().split())
end(net)
