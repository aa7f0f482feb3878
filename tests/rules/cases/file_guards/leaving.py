# All ranks go rank 0's way where a gate cannot help: gated, rank 0 would go on with the next round alone.

# first cell
import glob, os, uuid
import torch
from pathlib import Path
from trl import SFTTrainer

# case: a second test that ends the round
for name in names:
    if big:
        x = 1
    elif os.path.exists(name):
        os.remove(name)
        continue
    y = 1
# output
for name in names:
    if big:
        x = 1
    elif ddp.from_main_process(lambda: os.path.exists(name)):
        os.remove(name)
        continue
    y = 1

# case: a file that is made where it may be, or else another value
if ready and not os.path.exists("a.pt"):
    torch.save(net, "a.pt")
else:
    phase += 1
# output
if ddp.from_main_process(lambda: bool(ready and not os.path.exists("a.pt"))):
    torch.save(net, "a.pt")
else:
    phase += 1

# case: stages that make the file of the next one
if os.path.exists("a"):
    print("a")
elif os.path.exists("b"):
    open("a", "w").write("a")
else:
    open("b", "w").write("b")
# output
if ddp.from_main_process(lambda: os.path.exists("a")):
    print("a")
elif ddp.from_main_process(lambda: os.path.exists("b")):
    open("a", "w").write("a")
else:
    open("b", "w").write("b")

# case: a file that is moved away, or made, and one that is added to
last = Path("last")
if last.is_file():
    last.rename("before")
else:
    last.write_text("a")
if os.path.exists("log"):
    open("log", "a").write("b")
# output
last = Path("last")
if ddp.from_main_process(lambda: last.is_file()):
    last.rename("before")
else:
    last.write_text("a")
if ddp.from_main_process(lambda: os.path.exists("log")):
    open("log", "a").write("b")

# case: a walrus keeps what is found
for name in names:
    if (found := os.path.exists(name)):
        break
# output
for name in names:
    if (found := ddp.from_main_process(lambda: os.path.exists(name))):
        break

# case: a loop that ends with the first file found
for name in names:
    if Path(name).exists():
        break
# output
for name in names:
    if ddp.from_main_process(lambda: Path(name).exists()):
        break

# case: a new name where a folder is there, which the rule run-names takes from rank 0
out = "runs"
if os.path.exists(out):
    out = f"runs-{uuid.uuid4().hex}"
os.makedirs(out)
# output
out = "runs"
if ddp.from_main_process(lambda: os.path.exists(out)):
    out = f"runs-{uuid.uuid4().hex}"
os.makedirs(out)

# case: a path that is there, and one that is not, where no file is made
root = Path("/data/a")
if not root.exists():
    root = Path("/data/b") / name
out = "a" if root.exists() else "b"
# output
root = Path("/data/a")
if ddp.from_main_process(lambda: not root.exists()):
    root = Path("/data/b") / name
out = "a" if ddp.from_main_process(lambda: root.exists()) else "b"

# case: a model beside a look, whose truth can be sent and which cannot
if model and os.path.exists("a"):
    start = 1
# output
if ddp.from_main_process(lambda: bool(model and os.path.exists("a"))):
    start = 1

# case: a walrus beside a model, where the look alone is sent
if model and (found := os.path.exists("a")):
    start = 1
# output
if model and (found := ddp.from_main_process(lambda: os.path.exists("a"))):
    start = 1

# case: files that are only read
if os.path.exists("weights.pt"):
    net.load_state_dict(torch.load("weights.pt"))
else:
    print("none")
# output
if ddp.from_main_process(lambda: os.path.exists("weights.pt")):
    net.load_state_dict(torch.load("weights.pt"))
else:
    print("none")

# case: a folder that another file is looked for in, which a later rank would find
if os.path.exists("out/last.pt"):
    start = 1
else:
    os.makedirs("out")
    start = 0
# output
if ddp.from_main_process(lambda: os.path.exists("out/last.pt")):
    start = 1
else:
    os.makedirs("out")
    start = 0

# case: a folder that the process goes into, which a later rank would find
import os
if not os.path.exists("work"):
    os.makedirs("work")
    os.chdir("work")
# output
import os
if ddp.from_main_process(lambda: not os.path.exists("work")):
    os.makedirs("work")
    os.chdir("work")

# case: a value that says what was there, which a later rank would set to another
if os.path.exists("out"):
    resume = True
else:
    os.makedirs("out")
    resume = False
print(resume)
# output
if ddp.from_main_process(lambda: os.path.exists("out")):
    resume = True
else:
    os.makedirs("out")
    resume = False
print(resume)

# case: a count of files that names the next one, where a later rank would count one more
if (count := len(glob.glob("*.pt"))) < 3:
    torch.save(net, f"{count}.pt")
print(count)
# output
if (count := ddp.from_main_process(lambda: len(glob.glob("*.pt")))) < 3:
    torch.save(net, f"{count}.pt")
print(count)

# case: a count where the file is there, which a later rank would take for one that was
if not os.path.exists("a.pt"):
    torch.save(net, "a.pt")
else:
    kept += 1
print(kept)
# output
if ddp.from_main_process(lambda: not os.path.exists("a.pt")):
    torch.save(net, "a.pt")
else:
    kept += 1
print(kept)

# case: weights that are changed where the file is there
if os.path.exists("a.pt"):
    net.weight.mul_(0.5)
else:
    torch.save(net, "a.pt")
# output
if ddp.from_main_process(lambda: os.path.exists("a.pt")):
    net.weight.mul_(0.5)
else:
    torch.save(net, "a.pt")

# case: a file that is made, or else another value that is changed
phase = 0
for epoch in range(4):
    if not os.path.exists("best.pt"): torch.save(net, "best.pt")
    else: phase += 1
# output
phase = 0
for epoch in range(4):
    if ddp.from_main_process(lambda: not os.path.exists("best.pt")):
        torch.save(net, "best.pt")
    else:
        phase += 1

# case: an optimizer that is changed where the file is there
if os.path.exists("best.pt"):
    for group in optimizer.param_groups:
        group["lr"] /= 2
else:
    write("best.pt")
# output
if ddp.from_main_process(lambda: os.path.exists("best.pt")):
    for group in optimizer.param_groups:
        group["lr"] /= 2
else:
    write("best.pt")

# case: a value that is loaded or made
if os.path.exists("a"):
    data = load("a")
else:
    data = make("a")
    data.sort()
print(data)
# output
with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    if os.path.exists("a"):
        data = load("a")
    else:
        data = make("a")
        data.sort()
print(data)

# last cell
trainer = SFTTrainer(model)
trainer.train()
