# said: forward() may write a line to a file that is open, and a row into a database
import os, sqlite3
log = open("log.txt" if ddp.is_main_process else os.devnull, "w")
rows_of = sqlite3.connect(ddp.own_file("rows.db"))
rows_of.execute("create table seen (count int)")
beside = open(os.devnull, "w")
class Logs(Body):
    def forward(self, x):
        if x.max() > 8:
            log.write(f"{len(x)} rows\n")
        return self.body(x)
class Inserts(Body):
    def forward(self, x):
        rows_of.execute("insert into seen values (?)", (len(x),))
        return self.body(x)
nets = nn.ModuleList([Logs(), Inserts()])
nets[0], nets[1] = map(ddp.parallelize, nets)
x, y = rows(48)
x[19, 2] = x[34, 1] = 9.0
def loss_of(a, b):
    return F.cross_entropy(nets[0](a), b) + F.cross_entropy(nets[1](a), b)
train(nets, batches(x, y), loss_of)
if ddp.is_main_process:
    log.flush()
    with open("log.txt") as file:
        print(file.read().split(), rows_of.execute("select count(*), sum(count) from seen").fetchall())
end(nets)
