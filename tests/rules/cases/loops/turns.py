# The ranks take turns at the micro-batches of an accumulation step.

# first cell
import torch
from torch import nn
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
llm = AutoModelForCausalLM.from_pretrained("m")
loader = DataLoader(data, batch_size=8, shuffle=True)
import random
order = list(range(len(rows)))
at = 0

# case: a row
for step in range(100):
    total = 0.0
    for i in range(4):
        row = rows[order[at]]; at += 1
        loss = llm(**row).loss
        (loss / 4).backward()
        total += loss.item()
    opt.step()
    print(total)
# output
ddp_model = ddp.wrap(llm)  # nb2ddp: train through one DDP wrapper; `llm` is still the plain model
for step in range(100):
    total = 0.0
    for i in range(4):
        row = rows[order[at]]; at += 1
        if not ddp.takes_turn(i, 4, ddp_model):  # nb2ddp: this micro-batch is another rank's
            continue
        loss = ddp_model(**row).loss
        (loss / 4 * world_size).backward()
        total += loss.item()
    total = ddp.sum_over_ranks(total)  # nb2ddp: the sum over all ranks
    opt.step()
    print(total)
ddp.check_replicas(ddp_model)

# case: nothing to report
for step in range(100):
    total = 0.0
    for i in range(4):
        row = rows[order[at]]; at += 1
        llm(**row).loss.backward()
    opt.step()
    print(total)
# output
ddp_model = ddp.wrap(llm)  # nb2ddp: train through one DDP wrapper; `llm` is still the plain model
for step in range(100):
    total = 0.0
    for i in range(4):
        row = rows[order[at]]; at += 1
        if not ddp.takes_turn(i, 4, ddp_model):  # nb2ddp: this micro-batch is another rank's
            continue
        (ddp_model(**row).loss * world_size).backward()
    opt.step()
    print(total)
ddp.check_replicas(ddp_model)

# case: a sum of losses
for step in range(100):
    total = 0.0
    for i in range(4):
        row = rows[order[at]]; at += 1
        out = llm(**row)
        (out.a + out.b).backward()
    opt.step()
    print(total)
# output
ddp_model = ddp.wrap(llm)  # nb2ddp: train through one DDP wrapper; `llm` is still the plain model
for step in range(100):
    total = 0.0
    for i in range(4):
        row = rows[order[at]]; at += 1
        if not ddp.takes_turn(i, 4, ddp_model):  # nb2ddp: this micro-batch is another rank's
            continue
        out = ddp_model(**row)
        ((out.a + out.b) * world_size).backward()
    opt.step()
    print(total)
ddp.check_replicas(ddp_model)

# case: arguments that draw
for step in range(100):
    total = 0.0
    for i in range(4):
        row = rows[order[at]]; at += 1
        out = llm(x=torch.rand(8),  # noise
                  y=row)
        out.loss.backward()
    opt.step()
    print(total)
# output
ddp_model = ddp.wrap(llm)  # nb2ddp: train through one DDP wrapper; `llm` is still the plain model
for step in range(100):
    total = 0.0
    for i in range(4):
        row = rows[order[at]]; at += 1
        inputs = dict(x=torch.rand(8),  # noise
                  y=row)  # nb2ddp: made on every rank, so that all draw the same random numbers
        if not ddp.takes_turn(i, 4, ddp_model):  # nb2ddp: this micro-batch is another rank's
            continue
        out = ddp_model(**inputs)
        (out.loss * world_size).backward()
    opt.step()
    print(total)
ddp.check_replicas(ddp_model)
