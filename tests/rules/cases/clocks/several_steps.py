# The time is followed through names, functions and properties, up to the test that ends training.

# first cell
import time
from trl import SFTTrainer
START = time.time()

# case: a function that tells the time
def elapsed():
    return time.time() - START
for row in rows:
    loss.backward()
    if elapsed() > 60:
        break
# output
def elapsed():
    return time.time() - START
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: elapsed() > 60):
        break

# case: the truth of a file with the time in its name, which no rank can send
log = open(f"{time.time()}.txt", "a")
for row in rows:
    loss.backward()
    if log:
        log.write("x")
    if not log or (log.closed and log):
        break
# output
log = open(f"{time.time()}.txt", "a")
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: bool(log)):
        log.write("x")
    if ddp.from_main_process(lambda: bool(not log or (log.closed and log))):
        break

# case: a function that counts its own calls: every rank makes them
def every(seconds):
    last, calls = time.time(), 0
    def is_due():
        nonlocal last, calls
        calls += 1
        if time.time() - last > seconds:
            last = time.time()
            return True
        return False
    return is_due
is_due = every(60)
for row in rows:
    loss.backward()
    if is_due():
        break
# output
def every(seconds):
    last, calls = time.time(), 0
    def is_due():
        nonlocal last, calls
        calls += 1
        if time.time() - last > seconds:
            last = time.time()
            return True
        return False
    return is_due
is_due = every(60)
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda answer=is_due(): answer):
        break

# case: a function that answers by the time among others
def is_over(step):
    return step > 1000 or time.time() - START > 60
while not is_over(step):
    loss.backward()
# output
def is_over(step):
    return step > 1000 or time.time() - START > 60
while not ddp.from_main_process(lambda: is_over(step)):
    loss.backward()

# case: a function that answers below a test
def is_over():
    if time.time() - START > 60:
        return True
    return False
for row in rows:
    loss.backward()
    if is_over():
        break
# output
def is_over():
    if ddp.from_main_process(lambda: time.time() - START > 60):
        return True
    return False
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: is_over()):
        break

# case: a function that answers by a flag, with a test of the same name elsewhere
def is_over():
    stop = False
    if time.time() - START > 60:
        stop = True
    return stop
for row in rows:
    loss.backward()
    if is_over():
        break
stop = loss < 1
for row in rows:
    loss.backward()
    if stop:
        break
# output
def is_over():
    stop = False
    if ddp.from_main_process(lambda: time.time() - START > 60):
        stop = True
    return stop
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: is_over()):
        break
stop = loss < 1
for row in rows:
    loss.backward()
    if stop:
        break

# case: a function that answers below a while
def is_over():
    while time.time() - START > 60:
        return True
    return False
for row in rows:
    loss.backward()
    if is_over():
        break
# output
def is_over():
    while time.time() - START > 60:
        return True
    return False
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: is_over()):
        break

# case: a name made of another, and a flag
stop = False
for row in rows:
    loss.backward()
    elapsed = time.time() - START
    minutes = elapsed / 60
    if minutes > 5:
        stop = True
    if stop:
        break
# output
stop = False
for row in rows:
    loss.backward()
    elapsed = time.time() - START
    minutes = elapsed / 60
    if ddp.from_main_process(lambda: minutes > 5):
        stop = True
    if stop:
        break

# case: a property, and a flag of an object
class Budget:
    @property
    def spent(self):
        return time.time() - START
    def check(self):
        if self.spent > 60:
            self.stop = True
budget = Budget()
for row in rows:
    loss.backward()
    budget.check()
    if budget.stop:
        break
# output
class Budget:
    @property
    def spent(self):
        return time.time() - START
    def check(self):
        if ddp.from_main_process(lambda: self.spent > 60):
            self.stop = True
budget = Budget()
for row in rows:
    loss.backward()
    budget.check()
    if budget.stop:
        break

# case: a function that counts runs on all ranks, and rank 0's answer is taken
class Stopper:
    def is_over(self, loss):
        self.count += 1
        return self.count > 9 or time.time() - START > 60
stopper = Stopper()
for row in rows:
    loss.backward()
    if stopper.is_over(loss):
        break
# output
class Stopper:
    def is_over(self, loss):
        self.count += 1
        return self.count > 9 or time.time() - START > 60
stopper = Stopper()
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda answer=stopper.is_over(loss): answer):
        break

# case: a function that is given times and losses, and an attribute that two classes have
def fmt(x):
    return round(float(x), 4)
def is_better(new, old):
    return new < old
class Best:
    def __init__(self):
        self.best = None
    def take(self, value):
        if self.best is None or value < self.best:
            self.best = value
class Timer:
    def __init__(self):
        self.best = time.time()
keeper, timer = Best(), Timer()
for epoch in range(3):
    loss.backward()
    keeper.take(loss)
    value, took = fmt(loss), fmt(time.time() - START)
    if value < best or is_better(loss, best) or is_better(took, best):
        break
# output
def fmt(x):
    return round(float(x), 4)
def is_better(new, old):
    return new < old
class Best:
    def __init__(self):
        self.best = None
    def take(self, value):
        if self.best is None or value < self.best:
            self.best = value
class Timer:
    def __init__(self):
        self.best = time.time()
keeper, timer = Best(), Timer()
for epoch in range(3):
    loss.backward()
    keeper.take(loss)
    value, took = fmt(loss), fmt(time.time() - START)
    if ddp.from_main_process(lambda: value < best or is_better(loss, best) or is_better(took, best)):
        break

# case: a thread that looks at the clock
from threading import Thread
stop = False
def watch():
    global stop
    while not stop:
        if time.time() - START > 60:
            stop = True
def check():
    global stop
    if time.time() - START > 60:
        stop = True
Thread(target=watch, daemon=True).start()
schedule(check)
for row in rows:
    loss.backward()
    if stop:
        break
# output
from threading import Thread
stop = False
def watch():
    global stop
    while not stop:
        if time.time() - START > 60:
            stop = True
def check():
    global stop
    if time.time() - START > 60:
        stop = True
Thread(target=watch, daemon=True).start()
schedule(check)
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: bool(stop)):
        break

# case: a time that is only shown or kept
def train_epoch():
    begin = time.time()
    for row in rows:
        loss.backward()
    return loss, time.time() - begin
for epoch in range(9):
    value, took = train_epoch()
    if value < best:
        best = value
        break
    if took > 60:
        print("slow")

# last cell
t = SFTTrainer(llm)
t.train()
