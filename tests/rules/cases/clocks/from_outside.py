# A condition on the machine, another process or a thread that ends a loop is evaluated on rank 0 for all ranks.

# first cell
import math, os, shutil, signal, subprocess, threading
import psutil, torch

# case: the disk, the memory
for row in rows:
    loss.backward()
    if shutil.disk_usage(".").free < 10**9 or psutil.virtual_memory().percent > 95:
        break
# output
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: shutil.disk_usage(".").free < 10**9 or psutil.virtual_memory().percent > 95):
        break

# case: a file, in a function
def stops():
    return os.path.isfile("stop.txt")
for row in rows:
    loss.backward()
    if stops():
        break
# output
def stops():
    return os.path.isfile("stop.txt")
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: stops()):
        break

# case: a timer's event
done = threading.Event()
threading.Timer(60, done.set).start()
while not done.is_set():
    loss.backward()
# output
done = threading.Event()
threading.Timer(60, done.set).start()
while not ddp.from_main_process(lambda: done.is_set()):
    loss.backward()

# case: a signal's handler
stop = False
def on_signal(number, frame):
    global stop
    stop = True
signal.signal(signal.SIGTERM, on_signal)
for row in rows:
    loss.backward()
    if stop:
        break
# output
stop = False
def on_signal(number, frame):
    global stop
    stop = True
signal.signal(signal.SIGTERM, on_signal)
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: bool(stop)):
        break

# case: a process
other = subprocess.Popen(["sleep", "60"])
for row in rows:
    loss.backward()
    if other.poll() is not None:
        break
# output
other = subprocess.Popen(["sleep", "60"])
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: other.poll() is not None):
        break

# case: a GPU's memory
for row in rows:
    loss.backward()
    if torch.cuda.memory_reserved() > limit:
        break
# output
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: torch.cuda.memory_reserved() > limit):
        break

# case: the clock beside a flag of a timer's
import time
done = threading.Event()
threading.Timer(60, done.set).start()
for row in rows:
    loss.backward()
    if done.is_set() or time.time() - start > 60:
        break
# output
import time
done = threading.Event()
threading.Timer(60, done.set).start()
for row in rows:
    loss.backward()
    if ddp.from_main_process(lambda: done.is_set() or time.time() - start > 60):
        break

# case: a count that ends the loop, and one that is only shown
import worlds
world = worlds.make("pong")
score = left = 9
while left > 0:
    loss.backward()
    if world.lost():
        left = 0
    if world.step():
        print(score)
        score = 0
# output
import worlds
world = worlds.make("pong")
score = left = 9
while left > 0:
    loss.backward()
    if ddp.from_main_process(lambda: world.lost()):
        left = 0
    if world.step():
        print(score)
        score = 0

# case: what all ranks compute alike stays
patience = 0
for step, row in enumerate(rows):
    loss.backward()
    patience = 0 if loss.item() < best else patience + 1
    if step >= int(os.environ.get("STEPS", "9")) or math.isnan(loss.item()) or patience > 3:
        break
