"""Training scripts in which one rank is slow for once, and scripts in which it hangs: the first live, the others end.

What happens is in cell 2, and it happens once, on one rank, at one place of the run: ``prepare`` (the data), ``item``
(``__getitem__``), ``step``, ``callback``, ``between`` (two trainings), ``save`` (rank 0 alone, the others wait for it).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SCRIPT = """\
import asyncio, concurrent.futures, ctypes, multiprocessing, os, queue, signal, socket, subprocess, sys, threading, time
import ddp_support as ddp
rank, _, _ = ddp.init(seed=0)
import torch
SECONDS = float(os.environ["SECONDS"])
# ---- cell 2
def in_helper(code):
    return [sys.executable, "-c", "import ctypes, os, socket, sys, time\\n" + code, str(SECONDS), str(os.getpid())]
def evaluate_and_save():
    WHAT
def meet(place):
    if place == "PLACE" and rank == WHO and not os.path.exists("met"):
        with open("met", "w") as file:
            file.write(str(time.time()))
        evaluate_and_save()
# ---- cell 3
meet("prepare")
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, index):
        if index == 7:
            meet("item")
        return torch.ones(4) * index
model = ddp.parallelize(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
def on_step_end(step):
    if step == 4:
        meet("callback")
def train():
    for step, batch in enumerate(torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=WORKERS)):
        if step == 3:
            meet("step")
        model(batch).sum().backward()
        optimizer.step()
        on_step_end(step)
# ---- cell 4
train()
meet("between")
# ---- cell 5
train()
with ddp.main_process_only() as is_main:
    if is_main:
        meet("save")
ddp.check_replicas(model)
ddp.finish()
note(steps=ddp._run.steps)
"""


@dataclass(frozen=True)
class Case:
    """What one rank does, and where. ``says``: what the sentence that ends the run holds; None: the run lives."""

    place: str
    what: str
    rank: int = 1
    workers: int = 0
    says: str | None = None

    @property
    def script(self) -> str:
        what = self.what.replace("\n", "\n    ")
        words = {"WHAT": what, "PLACE": self.place, "WHO": str(self.rank), "WORKERS": str(self.workers)}
        script = SCRIPT
        for word, text in words.items():
            script = script.replace(word, text)
        return script

    def names_the_rank(self, text: str) -> bool:
        """Return whether the ranks' errors name the rank that hangs and its place, and no other rank as the one."""
        errors = re.findall(r"(?:nb2ddp: ERROR|Error): ((?:the ranks went|rank \d).*)", text)
        blamed = [re.split(r"; rank|, while rank", error)[0] for error in errors]
        return bool(blamed) and all(
            f"rank {self.rank} " in what and str(self.says) in what for what in blamed
        )


_SLEEP = "time.sleep(SECONDS)"
_ANSWER = (
    's = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True); c, _ = s.accept()\n'
)
_HOLD = """\
c, pid = ctypes.CDLL(None), int(sys.argv[2])
threads = [int(name) for name in os.listdir(f"/proc/{pid}/task")]
for thread in threads: c.ptrace(16, thread, None, None); os.waitpid(thread, 0x40000000)
time.sleep(float(sys.argv[1]))
for thread in threads: c.ptrace(17, thread, None, None)"""

CALM = {
    "a sleep in preparing data": Case("prepare", _SLEEP),
    "a sleep of rank 0 in preparing data": Case("prepare", _SLEEP, rank=0),
    "a sleep in a step": Case("step", _SLEEP),
    "a sleep in __getitem__": Case("item", _SLEEP),
    "a sleep in a worker": Case("item", _SLEEP, workers=1),
    "a sleep in a worker of rank 0": Case("item", _SLEEP, rank=0, workers=2),
    "a sleep between trainings": Case("between", _SLEEP),
    "a sleep in a callback": Case("callback", _SLEEP, rank=0),
    "a sleep in saving": Case("save", _SLEEP, rank=0),
    "a wait with a timeout in saving": Case("save", "threading.Event().wait(SECONDS)", rank=0),
    "a debugger's stop": Case("step", f"subprocess.Popen(in_helper({_HOLD!r})).wait()"),
    "a server that answers late": Case(
        "prepare",
        f"h = subprocess.Popen(in_helper({_ANSWER + 'time.sleep(float(sys.argv[1]))'!r}), stdout=subprocess.PIPE)\n"
        "socket.create_connection(('127.0.0.1', int(h.stdout.readline()))).recv(1)",
    ),
    "a file that another process has locked": Case(
        "prepare",
        "import fcntl\n"
        "subprocess.Popen(['flock', 'lock', 'sh', '-c', f'touch held; sleep {SECONDS}'])\n"
        "while not os.path.exists('held'): time.sleep(0.1)\n"
        "with open('lock') as file: fcntl.flock(file, fcntl.LOCK_EX)",
    ),
    "a person who answers late": Case(
        "callback",
        "os.mkfifo('terminal')\n"
        "subprocess.Popen(f'sleep {SECONDS}; echo go on > terminal', shell=True)\n"
        "with open('terminal') as terminal: terminal.readline()",
    ),
    "a compiler at work": Case(
        "step",
        "subprocess.run(in_helper('until = time.time() + float(sys.argv[1])\\nwhile time.time() < until: pass'))",
    ),
    "a tool that waits": Case("between", "subprocess.run(['sleep', str(SECONDS)], capture_output=True)"),
    "Python that computes": Case("prepare", "until = time.time() + SECONDS\nwhile time.time() < until: pass"),
    "native code that holds Python's lock": Case("step", "ctypes.PyDLL(None).sleep(int(SECONDS))"),
    "a thread that sleeps": Case(
        "callback",
        "with concurrent.futures.ThreadPoolExecutor(1) as pool: pool.submit(time.sleep, SECONDS).result()",
    ),
    "a thread in the background that reads ahead": Case(
        "item",
        "rows = queue.Queue()\n"
        "threading.Thread(target=lambda: rows.put(time.sleep(SECONDS)), daemon=True).start()\nrows.get()",
    ),
    "a pool of processes": Case(
        "prepare",
        "with multiprocessing.get_context('fork').Pool(1) as pool: pool.map(time.sleep, [SECONDS])",
        rank=0,
    ),
    "a signal that a timer sends": Case(
        "callback",
        "signal.signal(signal.SIGALRM, lambda *_: None)\nsignal.setitimer(signal.ITIMER_REAL, SECONDS)\nsignal.pause()",
    ),
    "a coroutine that sleeps": Case("between", "asyncio.run(asyncio.sleep(SECONDS))"),
    "a file that comes late": Case(
        "between",
        "subprocess.Popen(f'sleep {SECONDS}; touch came', shell=True)\n"
        "while not os.path.exists('came'): time.sleep(1)",
    ),
}

_HERE = "in evaluate_and_save()"
_LOADER = "(cell 3), in train()"
_STOP = "time.sleep(5)\nos.kill(os.getpid(), signal.SIGSTOP)"

HUNG = {
    "a lock taken twice in preparing data": Case(
        "prepare", "lock = threading.Lock()\nlock.acquire()\nlock.acquire()", says=_HERE
    ),
    "an empty queue in a step": Case("step", "queue.Queue().get()", says=_HERE),
    "an event that nobody sets in a callback": Case(
        "callback", "threading.Event().wait()", rank=0, says=_HERE
    ),
    "an event asked again and again": Case(
        "callback", "event = threading.Event()\nwhile not event.wait(1): pass", says=_HERE
    ),
    "a lock in saving": Case(
        "save", "lock = threading.Lock()\nlock.acquire()\nlock.acquire()", rank=0, says=_HERE
    ),
    "a barrier between trainings": Case("between", "threading.Barrier(2).wait()", says=_HERE),
    "an empty queue in __getitem__": Case("item", "queue.Queue().get()", says=_HERE),
    "a worker at an empty queue": Case("item", "queue.Queue().get()", workers=1, says=_LOADER),
    "a worker of rank 0 at a lock": Case(
        "item", "multiprocessing.Semaphore(0).acquire()", rank=0, workers=2, says=_LOADER
    ),
    "a worker that is stopped": Case("item", _STOP, workers=1, says=_LOADER),
    "a rank that is stopped": Case("step", _STOP, says=_HERE),
    "rank 0 stopped in saving": Case("save", _STOP, rank=0, says=_HERE),
    "rank 0 stopped in preparing data": Case("prepare", _STOP, rank=0, says=_HERE),
    "a thread that never ends": Case(
        "callback",
        "thread = threading.Thread(target=queue.Queue().get, daemon=True)\nthread.start()\nthread.join()",
        says=_HERE,
    ),
    "a pool whose process waits": Case(
        "prepare",
        "read, _ = os.pipe()\n"
        "with multiprocessing.get_context('fork').Pool(1) as pool: pool.apply(os.read, (read, 1))",
        says=_HERE,
    ),
    "a tool that waits for input": Case(
        "between", "subprocess.Popen(['cat'], stdin=subprocess.PIPE).wait()", says=_HERE
    ),
    "a pipe that nobody fills": Case("step", "os.read(os.pipe()[0], 1)", says=_HERE),
    "a question that nobody can answer": Case(
        "callback",
        "os.dup2(os.pipe()[0], 0)\nsys.stdin = open(0, closefd=False)\ninput('Go on? ')",
        says=_HERE,
    ),
    "a file that it has locked itself": Case(
        "step",
        "import fcntl\n"
        "one, two = open('lock', 'w'), open('lock', 'w')\n"
        "for file in (one, two): fcntl.flock(file, fcntl.LOCK_EX)",
        says=_HERE,
    ),
    "a file that its own process has locked": Case(
        "prepare",
        "import fcntl\n"
        'hold = \'import fcntl, signal; f = open("lock", "w"); fcntl.lockf(f, fcntl.LOCK_EX)\\n'
        'open("held", "w").close(); signal.pause()\'\n'
        "subprocess.Popen([sys.executable, '-c', hold])\n"
        "while not os.path.exists('held'): time.sleep(0.1)\n"
        "with open('lock', 'w') as file: fcntl.lockf(file, fcntl.LOCK_EX)",
        says=_HERE,
    ),
    "a signal that nobody sends": Case("callback", "signal.pause()", rank=0, says=_HERE),
    "a server of its own that never accepts": Case(
        "between",
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(server.getsockname()).recv(1)",
        says=_HERE,
    ),
    "a server of its own that never answers": Case(
        "between",
        "server = socket.create_server(('127.0.0.1', 0))\n"
        "client = socket.create_connection(server.getsockname())\nserver.accept(), client.recv(1)",
        says=_HERE,
    ),
    "a coroutine that never ends": Case(
        "between", "asyncio.run(asyncio.wait_for(asyncio.Event().wait(), None))", rank=0, says=_HERE
    ),
    "a rank that leaves": Case("step", "sys.exit(0)", says="left the script"),
    "a rank that waits at another place": Case("between", "train()", says="(cell 3)"),
    "an endless loop": Case("prepare", "while True: pass", says=_HERE),
}
