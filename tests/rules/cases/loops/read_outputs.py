# Of what a call of a model in a loop returns, the ranks exchange what is read of it.

# first cell
import torch
from torch import nn
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("m")

# case: an attribute
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    outputs = model(**batch)
    loss = outputs.loss / 4
    loss.backward()
    opt.step()
# output
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    outputs = ddp.only_outputs(model, "loss")(**batch)
    loss = outputs.loss / 4
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: an attribute of the call
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    loss = model(**batch).loss
    loss.backward()
    opt.step()
# output
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    loss = ddp.only_outputs(model, "loss")(**batch).loss
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: keys, and the outputs are deleted
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    outputs = model(**batch)
    loss = outputs['loss'] + outputs["aux"]
    del outputs
    loss.backward()
    opt.step()
# output
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    outputs = ddp.only_outputs(model, "loss", "aux")(**batch)
    loss = outputs['loss'] + outputs["aux"]
    del outputs
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a place
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    loss = model(batch)[0]
    loss.backward()
    opt.step()
# output
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    loss = ddp.only_outputs(model, 0)(batch)[0]
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a name that nobody reads
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    logits, loss = model(batch)
    loss.backward()
    opt.step()
# output
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    logits, loss = ddp.only_outputs(model, 1)(batch)
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a name that is bound again before it is read
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    logits, loss = model(batch)
    logits = loss.detach()
    print(logits)
    loss.backward()
    opt.step()
# output
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    logits, loss = ddp.only_outputs(model, 1)(batch)
    logits = loss.detach()
    print(logits)
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: each call for itself
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    outputs = model(**batch)
    loss = outputs.loss
    with torch.no_grad():
        found = model(**batch)
        print(found.logits.argmax(-1))
    loss.backward()
    opt.step()
print(model(**batch).logits)
# output
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    outputs = ddp.only_outputs(model, "loss")(**batch)
    loss = outputs.loss
    with torch.no_grad():
        found = ddp.only_outputs(model, "logits")(**batch)
        print(found.logits.argmax(-1))
    loss.backward()
    opt.step()
ddp.check_replicas()
print(model(**batch).logits)

# case: a function that is given the model
def step(net, batch):
    logits, loss = net(batch)
    loss.backward()
    opt.step()
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    step(model, batch)
# output
def step(net, batch):
    logits, loss = ddp.only_outputs(net, 1)(batch)
    loss.backward()
    opt.step()
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    step(model, batch)
ddp.check_replicas()

# case: a state that only the next turn reads, in either branch
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    state = loss = 0
    for word in batch:
        if forced:
            out, state, weights = model(word, state)
            word = best(out)
        else:
            out, state, weights = model(word, state)
        loss += out.sum()
    loss.backward()
    opt.step()
# output
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    state = loss = 0
    for word in batch:
        if forced:
            out, state, weights = ddp.only_outputs(model, 0, 1)(word, state)
            word = best(out)
        else:
            out, state, weights = ddp.only_outputs(model, 0, 1)(word, state)
        loss += out.sum()
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: all may be read
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    one = model(**batch)
    print(one)
    loss = one.loss
    two = model(**batch)
    text = f"{two}"
    loss += two.loss
    three = model(**batch)
    metric.add(three)
    loss += three.loss
    four = model(**batch)
    parts = four.to_tuple()
    loss += four.loss
    five = model(**batch)
    loss += five[key]
    six, *rest = model(batch)
    loss += six
    self.logits, seven = model(batch)
    loss += seven
    eight = model(**batch)
    kept = eight
    loss += eight.loss
    nine, shape = model(batch)
    print(nine.shape)
    loss += criterion(model(**batch), batch) + shape
    loss += sum(model(**batch).values())
    ten = eleven = model(**batch)
    loss += ten.loss
    loss += model(batch)[-1] + model(batch)[1:][0]
    (logits, aux), twelve = model(batch)
    loss += twelve
    [logits, thirteen] = model(batch)
    loss += thirteen
    loss += [*model(batch)][0]
    def later():
        return fourteen.logits
    fourteen = model(**batch)
    loss += fourteen.loss + later().sum()
    loss.backward()
    opt.step()
# output
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    one = model(**batch)
    print(one)
    loss = one.loss
    two = model(**batch)
    text = f"{two}"
    loss += two.loss
    three = model(**batch)
    metric.add(three)
    loss += three.loss
    four = model(**batch)
    parts = four.to_tuple()
    loss += four.loss
    five = model(**batch)
    loss += five[key]
    six, *rest = model(batch)
    loss += six
    self.logits, seven = model(batch)
    loss += seven
    eight = model(**batch)
    kept = eight
    loss += eight.loss
    nine, shape = model(batch)
    print(nine.shape)
    loss += criterion(model(**batch), batch) + shape
    loss += sum(model(**batch).values())
    ten = eleven = model(**batch)
    loss += ten.loss
    loss += model(batch)[-1] + model(batch)[1:][0]
    (logits, aux), twelve = model(batch)
    loss += twelve
    [logits, thirteen] = model(batch)
    loss += thirteen
    loss += [*model(batch)][0]
    def later():
        return fourteen.logits
    fourteen = ddp.only_outputs(model, "logits", "loss")(**batch)
    loss += fourteen.loss + later().sum()
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: where an assignment may fail, or not be come to
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    one, loss = model(batch)
    try:
        one = int(text)
    except ValueError:
        pass
    print(one)
    two, more = model(batch)
    with contextlib.suppress(ValueError):
        two = int(text)
    print(two)
    three, rest = model(batch)
    match kind:
        case 1:
            three = 1
    print(three)
    loss += more + rest
    loss.backward()
    opt.step()
# output
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    one, loss = model(batch)
    try:
        one = int(text)
    except ValueError:
        pass
    print(one)
    two, more = model(batch)
    with contextlib.suppress(ValueError):
        two = int(text)
    print(two)
    three, rest = model(batch)
    match kind:
        case 1:
            three = 1
    print(three)
    loss += more + rest
    loss.backward()
    opt.step()
ddp.check_replicas()

# case: a name of the function around
def run():
    last = None
    def step(batch):
        nonlocal last
        last, loss = model(batch)
        loss.backward()
        opt.step()
    for batch in loader:
        step(batch)
    return last
opt = torch.optim.AdamW(model.parameters())
run()
# output
def run():
    last = None
    def step(batch):
        nonlocal last
        last, loss = model(batch)
        loss.backward()
        opt.step()
    for batch in loader:
        step(batch)
    return last
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
run()
ddp.check_replicas()

# case: in another cell
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    logits, loss = model(batch)
    loss.backward()
    opt.step()
# %%
print(logits)
# output
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    logits, loss = model(batch)
    loss.backward()
    opt.step()
ddp.check_replicas()
# %%
print(logits)

# case: by its name as a text
opt = torch.optim.AdamW(model.parameters())
for batch in loader:
    logits, loss = model(batch)
    print(globals()["logits"])
    loss.backward()
    opt.step()
# output
opt = torch.optim.AdamW(model.parameters())
ddp.parallelize(model)  # nb2ddp: each rank computes its part of every batch
for batch in loader:
    logits, loss = model(batch)
    print(globals()["logits"])
    loss.backward()
    opt.step()
ddp.check_replicas()
