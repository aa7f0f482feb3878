# A notebook's own blocks in which the main process goes first wait in torchrun's store.

# first cell
import os
from accelerate import Accelerator
from datasets import load_dataset
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
args = TrainingArguments("o")
model = AutoModelForCausalLM.from_pretrained("m")

# last cell
trainer = Trainer(model, args, train_dataset=data)
trainer.train()

# case: of training arguments
with args.main_process_first(local=False, desc="map"):
    data = load_dataset("d").map(f)
# output
with ddp.main_process_first():
    data = load_dataset("d").map(f)

# case: in a function, with another context
def prepare(args):
    with args.main_process_first(), open("log") as log:
        return load_dataset("d", split=log.read())
data = prepare(args)
# output
def prepare(args):
    with ddp.main_process_first(), open("log") as log:
        return load_dataset("d", split=log.read())
with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
    data = prepare(args)

# case: of an Accelerator
accelerator = Accelerator()
with accelerator.local_main_process_first():
    data = load_dataset("d")
# output
accelerator = Accelerator()
with ddp.main_process_first():
    data = load_dataset("d")

# case: around a look at files, which another rule lets rank 0 take
accelerator = Accelerator()
with accelerator.main_process_first():
    if os.path.exists("out"):
        resume = True
    else:
        os.makedirs("out")

# case: around a look at files, with a cache
accelerator = Accelerator()
with accelerator.main_process_first():
    if os.path.exists("rows.json"):
        data = load_dataset("json", data_files="rows.json")
# output
accelerator = Accelerator()
with ddp.main_process_first():
    if os.path.exists("rows.json"):
        data = load_dataset("json", data_files="rows.json")
