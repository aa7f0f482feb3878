# What a micro-batch writes to files, trackers or handlers of logging, one process has to compute.

# case: a file
from transformers import Trainer
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        with open("losses.txt", "a") as file:
            file.write(f"{loss.item()}\n")
        return loss
t = Mine(llm)
t.train()
# output
from transformers import Trainer
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        with open("losses.txt", "a") as file:
            file.write(f"{loss.item()}\n")
        return loss
t = Mine(llm)
ddp_model = ddp.wrap_trainer(t, whole=True)  # nb2ddp: every rank computes all micro-batches, because they write to files or trackers
t.train()
ddp.check_replicas(ddp_model)
# note, line 5: a micro-batch writes here...

# case: a tracker, in a model
from torch.utils.tensorboard import SummaryWriter
from transformers import BertModel, Trainer
writer = SummaryWriter("tb")
class Net(BertModel):
    def forward(self, **given):
        writer.add_scalar("rows", len(given["labels"]), 1)
        return super().forward(**given)
t = Trainer(Net())
t.train()
# output
from torch.utils.tensorboard import SummaryWriter
from transformers import BertModel, Trainer
writer = SummaryWriter("tb")
class Net(BertModel):
    def forward(self, **given):
        writer.add_scalar("rows", len(given["labels"]), 1)
        return super().forward(**given)
t = Trainer(Net())
ddp_model = ddp.wrap_trainer(t, whole=True)  # nb2ddp: every rank computes all micro-batches, because they write to files or trackers
t.train()
ddp.check_replicas(ddp_model)
# note, line 6: a micro-batch writes here...

# case: a database, in a model
import sqlite3
from transformers import BertModel, Trainer
base = sqlite3.connect("rows.db")
class Net(BertModel):
    def forward(self, **given):
        base.execute("insert into rows values (?)", (len(given["labels"]),))
        return super().forward(**given)
t = Trainer(Net())
t.train()
# output
import sqlite3
from transformers import BertModel, Trainer
base = sqlite3.connect("rows.db")
class Net(BertModel):
    def forward(self, **given):
        base.execute("insert into rows values (?)", (len(given["labels"]),))
        return super().forward(**given)
t = Trainer(Net())
ddp_model = ddp.wrap_trainer(t, whole=True)  # nb2ddp: every rank computes all micro-batches, because they write to files or trackers
t.train()
ddp.check_replicas(ddp_model)
# note, line 6: a micro-batch writes here...

# case: a tracker, in a function that the loss calls
import wandb
from transformers import Trainer
def show(value):
    wandb.log({"mine": value})
def my_loss(outputs, labels, num_items_in_batch = None):
    loss = outputs["loss"]
    show(loss.item())
    return loss
t = Trainer(llm, compute_loss_func = my_loss)
t.evaluate()
t.train()
# output
import wandb
from transformers import Trainer
def show(value):
    wandb.log({"mine": value})
def my_loss(outputs, labels, num_items_in_batch = None):
    loss = outputs["loss"]
    show(loss.item())
    return loss
t = Trainer(llm, compute_loss_func = my_loss)
ddp.prepare_trainer(t, whole=True)  # nb2ddp: every rank computes its batches, because they write
t.evaluate()
ddp_model = ddp.wrap_trainer(t, whole=True)  # nb2ddp: every rank computes all micro-batches, because they write to files or trackers
t.train()
ddp.check_replicas(ddp_model)
# note, line 4: a micro-batch writes here...

# case: figures in a list, a print and the Trainer's own log
from transformers import Trainer
seen = []
class Mine(Trainer):
    def training_step(self, *args, **options):
        loss = super().training_step(*args, **options)
        seen.append(loss.item())
        self.log({"mine": loss.item()})
        print(loss.item())
        return loss
t = Mine(llm)
t.train()
# output
from transformers import Trainer
seen = []
class Mine(Trainer):
    def training_step(self, *args, **options):
        loss = super().training_step(*args, **options)
        seen.append(loss.item())
        self.log({"mine": loss.item()})
        print(loss.item())
        return loss
t = Mine(llm)
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)

# case: a logger that writes to a file
import logging
from transformers import Trainer
logging.basicConfig(filename = "run.log")
log = logging.getLogger("run")
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        log.info("%f", loss.item())
        return loss
t = Mine(llm)
t.train()
# output
import logging
from transformers import Trainer
logging.basicConfig(filename = "run.log")
log = logging.getLogger("run")
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        log.info("%f", loss.item())
        return loss
t = Mine(llm)
ddp_model = ddp.wrap_trainer(t, whole=True)  # nb2ddp: every rank computes all micro-batches, because they write to files or trackers
t.train()
ddp.check_replicas(ddp_model)
# note, line 8: a micro-batch writes here...
