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
