# The process group is joined before a hand-written loop, and before a function that loads and trains.

# case: after the load
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("m").to("cuda")
for batch in DataLoader(data):
    loss = model(**batch).loss
    loss.backward()
# output
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("m").to("cuda")
ddp.init_process_group()  # nb2ddp: join the process group
for batch in DataLoader(data):
    loss = model(**batch).loss
    loss.backward()

# case: before a function that loads and trains
from torch.utils.data import DataLoader
from transformers import AutoModel
def epoch(model):
    for batch in DataLoader(data):
        model(**batch).loss.backward()
def main():
    model = AutoModel.from_pretrained("m")
    epoch(model)
main()
# output
from torch.utils.data import DataLoader
from transformers import AutoModel
def epoch(model):
    for batch in DataLoader(data):
        model(**batch).loss.backward()
def main():
    model = AutoModel.from_pretrained("m")
    epoch(model)
ddp.init_process_group()  # nb2ddp: join the process group
main()

# case: an object that a module's function trains, and one that the notebook does
import agents, torch
class Agent:
    def __init__(self):
        self.net = torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters())
    def update(self, rows):
        self.net(rows).sum().backward()
        self.optimizer.step()
first = Agent()
agents.train(first, 12)
second = Agent()
for rows in batches:
    second.update(rows)
# output
import agents, torch
class Agent:
    def __init__(self):
        self.net = torch.nn.Linear(2, 2)
        self.optimizer = torch.optim.SGD(self.net.parameters())
    def update(self, rows):
        self.net(rows).sum().backward()
        self.optimizer.step()
first = Agent()
ddp.init_process_group()  # nb2ddp: join the process group
agents.train(first, 12)
second = Agent()
for rows in batches:
    second.update(rows)
