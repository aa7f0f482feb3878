# A file that one process alone can make: the others wait for rank 0, or make it anew in their turns.

# first cell
import codecs, json, os
from trl import SFTTrainer

# case: below a `try` that asks whether the file is there
try:
    with open("lock", "x") as f:
        f.write("a")
    first = True
except FileExistsError:
    first = False
# output
try:
    with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
        if is_main:
            with open("lock", "x") as f:
                f.write("a")
    first = True
except FileExistsError:
    first = False

# case: without a `with`, in a cell
open("lock", "x")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        open("lock", "x")

# case: open until later
log = open("log.csv", "x")
log.write("a")
# output
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    log = open("log.csv", "x")
log.write("a")

# case: open until later in a function
def note(text):
    log = open("log.csv", "x")
    log.write(text)
    log.close()
note("a")
# output
def note(text):
    with ddp.in_turn():  # nb2ddp: the ranks write one after another
        log = open("log.csv", "x")
    log.write(text)
    log.close()
note("a")

# case: open until later where some ranks may come alone
def note(text):
    log = open("log.csv", "x")
    log.write(text)
trainer = SFTTrainer(model, compute_metrics=note)
trainer.train()
# decline, line 2: one process alone can create a file...

# case: open around the training
with open("log.csv", "x") as log:
    trainer = SFTTrainer(model)
    trainer.train()
# decline, line 1: one process alone can create a file...

# case: a hard link
os.link("last.pt", "best.pt")
# output
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        os.link("last.pt", "best.pt")

# case: lines that are added and read
with open("log.txt", "a+") as f:
    f.write("a")
    f.seek(0)
    count = len(f.readlines())
print(count)
# output
with open(ddp.own_file(anew=True, path="log.txt"), "a+") as f:
    f.write("a")
    f.seek(0)
    count = len(f.readlines())
ddp.from_main_process(lambda: None)  # nb2ddp: wait for rank 0's file
print(count)

# case: a file that is opened to be changed, and only read
def encoded(path):
    return base64.b64encode(io.open(path, "r+b").read())
print(encoded("a.mp4"), Path("b.mp4").open("rb+").readlines())

# case: a file that is read and written again
def bump(path):
    with open(path, "r+") as f:
        state = json.load(f)
        state["runs"] += 1
        f.seek(0)
        json.dump(state, f)
    return state
print(bump("state.json"))
with open("last.txt", "w+") as f:
    f.write("a")
# output
def bump(path):
    with open(ddp.own_file(anew=True, path=path), "r+") as f:
        state = json.load(f)
        state["runs"] += 1
        f.seek(0)
        json.dump(state, f)
    ddp.from_main_process(lambda: None)  # nb2ddp: wait for rank 0's file
    return state
print(bump("state.json"))
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        with open("last.txt", "w+") as f:
            f.write("a")

# case: a file that the system opens
first = os.open("lock", os.O_CREAT | os.O_EXCL)
os.close(first)
# output
with ddp.in_turn():  # nb2ddp: the ranks write one after another
    first = os.open("lock", os.O_CREAT | os.O_EXCL)
os.close(first)

# case: a compressed log that stays open
import gzip
from loguru import logger
logger.add("run.log", level="INFO")
log = gzip.open("log.gz", "at")
log.write("a")
# output
import gzip
from loguru import logger
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        logger.add("run.log", level="INFO")
log = gzip.open("log.gz" if ddp.is_main_process else os.devnull, "at")
log.write("a")

# case: lines that the system writes, and others
log = os.open("log.txt", os.O_WRONLY | os.O_APPEND)
os.write(log, b"a")
with codecs.open("a.txt", "a", "utf-8") as f:
    f.write("a")
# output
log = os.open("log.txt" if ddp.is_main_process else os.devnull, os.O_WRONLY | os.O_APPEND)
os.write(log, b"a")
with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes
    if is_main:
        with codecs.open("a.txt", "a", "utf-8") as f:
            f.write("a")

# last cell
trainer = SFTTrainer(model)
trainer.train()
