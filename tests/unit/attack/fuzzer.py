"""A seeded fuzzer: notebooks with faults in their JSON and their statements, under varied options.

A case belongs to one family of faults, so that outcomes can be counted by family. Each conversion is watched:
what it writes, starts or prints, how long it takes, and whether all that it made can be written and shown.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import html
import io
import itertools
import json
import random
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nb2ddp.conversion import report
from nb2ddp.conversion.pipeline import Conversion, convert
from nb2ddp.conversion.terminal import diff
from nb2ddp.ddp_folder import SUPPORT
from nb2ddp.errors import Nb2ddpError
from nb2ddp.options import Options
from nb2ddp.page.page import page
from nb2ddp.plain_text import json_text, terminal_safe
from tests.unit.attack.nasty import TEXTS, UNSAFE

SECONDS = 10.0  # of CPU time, for one conversion
CELLS = 8  # of a notebook that is mutated; a larger one is thinned out first
STATEMENTS = """
x = 1
return 1
await f()
async with a: pass
break
global model
del trainer
yield
from __future__ import annotations
import *
!ls {x
!cd /
%cd /
%%bash\nls
%env A=1
%time trainer.train()
x = !ls
?x
x?
%%capture out
%%time
%%writefile a.py\nx = 1
%%run_ddp
%load_ext nb2ddp
!pip install '
!python train.py &
    x = 1
if True:\n        x = 1\n    y = 2
f'{d['a']}'
f"{x!r:{'>'}{10}}"
type X = int
def f[T](x: T) -> T: return x
except* ValueError: pass
for i in range(3):
'''
(
\\
model = model
trainer.train()
trainer = trainer
while True:\n    trainer.train()
\f
\0
class Trainer: pass
trainer.train = None
lambda: trainer.train()
with trainer: trainer.train()
try:\n    trainer.train()\nexcept: pass
match model:\n    case x: pass
model: int
model += 1
os.environ['X'] = '1'
torch.cuda.set_device(0)
x = 'cuda:0'
exit()
print = None
rank = 3
ddp = 3
import ddp_support
import os as torch
from trl import *
model, trainer = trainer, model
(model := trainer)
trainer = [trainer for trainer in trainer]
for trainer in trainer: trainer.train()
def trainer(): return trainer()
def train(): train(); trainer.train()
class A(A): pass
@trainer.train\ndef f(): pass
x = x = x = trainer.train()
nonlocal model
*model, = trainer
trainer.args.per_device_train_batch_size = model.x[trainer.train()]
args = dict(args, **args)
accelerator.prepare(*trainer)
x = lambda x=trainer.train(): (yield)
assert trainer.train(), x
if (trainer.train()): pass
else: trainer.train()
exec("trainer.train()")
globals()["trainer"].train()
getattr(trainer, "train")()
with open("x") as f, trainer.train() as g: pass
# nb2ddp: keep
# %% [markdown]
x = 1; trainer.train(); y = 2
torch.manual_seed(trainer.train())
os._exit(0)
import sys; sys.exit()
loader = DataLoader(loader, batch_size=loader)
loss.backward(loss.backward())
for batch in loader: loss = model(batch); loss.backward(); opt.step(); break
""".strip("\n").split("\n")
STATEMENTS = [text.replace("\\n", "\n").replace("\\f", "\f").replace("\\0", "\0") for text in STATEMENTS]
NEWER = r"""
x = t'{model}' t'{trainer}'
x = 'a' t'{model}'
x = f'{model}' t'{trainer}' 'b'
x = (t'{a}'\n     t'b')
x = tr'{model!r:{x}}'
x = t'{f"{t'{x}'}"}'
x = f"{f"{f"{1}"}"}"
x = f'{x:{y:{z}}}'
x = f"{'\\n'.join(a)}"
x = f'{\n    1  # one\n}'
type X[T: (int, str) = int, *Ts = *tuple[int], **P = [int]] = dict[T, P]
class A[T = int](B[T]): x: T
def f[**P](*a: P.args) -> None: trainer.train()
async def f[T](x: T): yield await x
try:\n    trainer.train()\nexcept A, B:\n    pass
try:\n    trainer.train()\nexcept* A, B:\n    pass
try:\n    x = 1\nfinally:\n    for a in b: break
lazy import torch
lazy from trl import SFTTrainer
x = [*a for a in b]
x = {**a for a in b}
x = f(*a for a in b)
with (a as b, c as d,): trainer.train()
match x:\n    case {"a": [1, *_], **rest} if rest: trainer.train()
x[*a, 1:2] = 1
for x in *a, *b: pass
lambda *, a=1, **k: (yield)
def f(a, /, b, *, c): nonlocal d
x = b'a' 'b'
x = b'a' t'b'
x = d\'\'\'a\'\'\'
print(t'' f'' '')
@(x := f)\ndef g(): pass
%set_env X={undefined_name}
%env X={model}{undefined_name}
!echo {t'{x}'}
%time x = t'{a}' t'{b}'
""".strip("\n").split("\n")
NEWER = [text.replace("\\n", "\n").replace("\\'", "'") for text in NEWER]
"""Syntax of Python 3.11 to 3.15, and what is close to it."""

TOKEN = "hf_" + "".join(
    random.Random(5).choices("abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789", k=34)
)
CHARACTERS = [
    *"()[]{}'\"\\\n\t\r #!%?=:;,.@$\0\f\x1b\u2028\ufeff\xa0",
    "\ud800",
    "'''",
    '"""',
    "é",
    "\U0001d431",
    "",
]
VALUES: list[Any] = [None, True, -1, 1e308, float("nan"), 10**400, "", "x", [], {}, [[]], {"a": {}}]
VALUES += ["\ud800", "\0", ["\0", 1, None], *TEXTS]
OPTIONS: dict[str, list[Any]] = {
    "nproc": [1, 2, 3, 64, 0, -1, 2**70, True, "2", 1.5, None, float("nan")],
    "batch": ["preserve", "scale", "", None, 1, ["scale"]],
    "strategy": ["ddp", "balanced", "fsdp", None, {}],
    "gpu_memory": [1.0, 15.0, 80.0, 1, 0, -1.0, 1e308, float("nan"), float("inf"), "15", None, True],
    "owner": [None, "ada", "", "a/b", "..", 5, *TEXTS],
    "title": [None, "Title", "", " ", "..", 5, *TEXTS],
    "single_file": [True, False, None, "yes", 1],
    "wrap": ["explicit"],  # there is no such option
    "__class__": [2],
}
_GOOD = {"nproc": 4, "batch": 2, "strategy": 2, "gpu_memory": 3, "owner": 1, "title": 2}
"""How many of the first values of an option are good ones."""


@dataclass(frozen=True)
class Case:
    """A mutant: its notebook, the name of its file, the options, and the family of its faults."""

    seed: int
    family: str
    notebook: dict[str, Any]
    name: str
    options: dict[str, Any]


def mutate(notebook: dict[str, Any], seed: int) -> Case:
    """Return a notebook of at most CELLS cells with one to three faults of a family, and options."""
    dice = random.Random(seed)
    notebook = _thinned(copy.deepcopy(notebook), dice)
    family = dice.choice([*FAMILIES, "options", "file name", "mixed"])
    options: dict[str, Any] = {
        name: dice.choice(OPTIONS[name][:good]) for name, good in _GOOD.items() if dice.random() < 0.5
    }
    options["single_file"] = dice.random() < 0.02  # it takes ten times as long
    name = "x"
    if family == "options":
        for chosen in dice.sample(list(OPTIONS), dice.randint(1, 2)):
            options[chosen] = dice.choice(OPTIONS[chosen])
    elif family == "file name":
        name = dice.choice(TEXTS).replace("/", "|").replace("\0", "")
        name = name.replace("\ud83d", "")[:80]  # this half of a character is in no file's name
    else:
        faults = list(FAMILIES.values()) if family == "mixed" else [FAMILIES[family]]
        for _ in range(dice.choice([1, 1, 1, 2, 3])):
            dice.choice(faults)(notebook, dice)
    return Case(seed, family, notebook, f"{name}.ipynb", options)


def _thinned(notebook: dict[str, Any], dice: random.Random) -> dict[str, Any]:
    """Return the notebook with at most CELLS cells, in their order; those that train are kept."""
    cells = notebook.get("cells")
    if isinstance(cells, list) and len(cells) > CELLS:
        trains = [
            n for n, cell in enumerate(cells) if ".train(" in _source(cell) or ".backward(" in _source(cell)
        ]
        kept = set(trains[:2]) | set(dice.sample(range(len(cells)), CELLS - len(trains[:2])))
        notebook["cells"] = [cell for n, cell in enumerate(cells) if n in kept]
    return notebook


def _source(cell: Any) -> str:
    source = cell.get("source", "") if isinstance(cell, dict) else ""
    return "".join(map(str, source)) if isinstance(source, list) else str(source)


def _code(notebook: dict[str, Any], dice: random.Random) -> dict[str, Any] | None:
    cells = notebook.get("cells")
    cells = cells if isinstance(cells, list) else []
    cells = [
        c for c in cells if isinstance(c, dict) and isinstance(c.get("source"), str | list) and c["source"]
    ]
    return dice.choice(cells) if cells else None


def _in_statement(notebook: dict[str, Any], dice: random.Random) -> None:
    """Insert, remove, repeat, move, indent or nest a line."""
    if (cell := _code(notebook, dice)) is None:
        return
    lines = _source(cell).split("\n")
    at = dice.randrange(len(lines))
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
    match dice.randrange(8):
        case 0 | 1:
            lines.insert(at, dice.choice(STATEMENTS))
        case 2:
            new = dice.choice(STATEMENTS)
            lines.insert(at, "\n".join(indent + line for line in new.split("\n")))
        case 3:
            del lines[at]
        case 4:
            lines.insert(at, lines[at])
        case 5:
            lines.insert(dice.randrange(len(lines)), lines.pop(at))
        case 6:
            opening = dice.choice(["if x:", "for i in range(2):", "def f():", "try:", "with x:", "class C:"])
            body = [f"    {line}" for line in lines[at:]]
            lines[at:] = [opening, *body, *(["except Exception:", "    pass"] if opening == "try:" else [])]
        case _:
            lines[at] = " " * dice.randint(1, 5) + lines[at]
    cell["source"] = "\n".join(lines)


def _newer(notebook: dict[str, Any], dice: random.Random) -> None:
    """Insert newer syntax at a line, as it is or broken."""
    if (cell := _code(notebook, dice)) is None:
        return
    lines = _source(cell).split("\n")
    at = dice.randrange(len(lines) + 1)
    indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())] if at < len(lines) else ""
    new = dice.choice(NEWER)
    if dice.random() < 0.3:
        cut = dice.randrange(len(new) + 1)
        new = new[:cut] + dice.choice([*CHARACTERS, dice.choice(NEWER)]) + new[cut + dice.randint(0, 2) :]
    lines.insert(at, "\n".join(indent + line for line in new.split("\n")))
    cell["source"] = "\n".join(lines)


def _long(notebook: dict[str, Any], dice: random.Random) -> None:
    """Repeat a line, or blank ones."""
    if (cell := _code(notebook, dice)) is None:
        return
    lines = _source(cell).split("\n")
    at = dice.randrange(len(lines))
    repeated = dice.choice([[""], ["# c", ""], [lines[at], ""]])
    lines[at:at] = repeated * dice.randint(100, 2000 if repeated[0] != lines[at] else 100)
    cell["source"] = "\n".join(lines)


def _secret(notebook: dict[str, Any], dice: random.Random) -> None:
    """Write a token into cells: whole, and in parts that are put together."""
    cuts = sorted(dice.sample(range(1, len(TOKEN)), dice.randint(1, 9)))
    parts = [TOKEN[a:b] for a, b in itertools.pairwise([0, *cuts, len(TOKEN)])]
    names = [f"part_{n}" for n in range(len(parts))]
    bound = "\n".join(f"{name} = {part!r}" for name, part in zip(names, parts, strict=True))
    listed = ", ".join(map(repr, parts))
    ways = [
        f"t = {TOKEN!r}",
        f"t = {' + '.join(map(repr, parts))}",
        f"t = ''.join([{listed}])",
        f"t = {'%s' * len(parts)!r} % ({listed})",
        f"t = {'{}' * len(parts)!r}.format({listed})",
        f"{bound}\nt = {' + '.join(names)}",
        f"{bound}\nt = f'{''.join(f'{{{name}}}' for name in names)}'",
        "t = ''\n" + "\n".join(f"t += {part!r}" for part in parts),
        f"t = ''\nfor p in [{listed}]:\n    t += p",
        f"{TOKEN!r}\nt = whatever({listed})",
        f"t = {TOKEN[::-1]!r}[::-1]",
        f"%env HF_TOKEN={TOKEN}",
        f"!tool --token {TOKEN}",
    ]
    cells = notebook.get("cells")
    if not isinstance(cells, list):
        return
    for _ in range(dice.randint(1, 3)):
        cell = {
            "cell_type": "code",
            "metadata": {},
            "outputs": [],
            "source": f"{dice.choice(ways)}\nprint(t)",
        }
        cells.insert(dice.randrange(len(cells) + 1), cell)


def _in_name(notebook: dict[str, Any], dice: random.Random) -> None:
    """Give a name, number or string another's place, everywhere in a cell or once."""
    if (cell := _code(notebook, dice)) is None:
        return
    other = _code(notebook, dice) or cell
    words = _words(_source(cell))
    others = [
        *_words(_source(other)),
        *("None", "[]", "-1", "ddp", "rank", "torch", "print", "__name__", "_"),
    ]
    if not words:
        return
    old, new = dice.choice(words), dice.choice(others)
    cell["source"] = _source(cell).replace(old, new, dice.choice([1, -1]))


def _words(source: str) -> list[str]:
    word, words = "", []
    for character in f"{source} ":
        if character.isalnum() or character == "_":
            word += character
        elif word:
            words.append(word)
            word = ""
    return words


def _in_text(notebook: dict[str, Any], dice: random.Random) -> None:
    """Put a character somewhere, or take some away."""
    if (cell := _code(notebook, dice)) is None:
        return
    source = _source(cell)
    at = dice.randrange(len(source) + 1)
    cell["source"] = source[:at] + dice.choice(CHARACTERS) + source[at + dice.randint(0, 6) :]


def _in_cells(notebook: dict[str, Any], dice: random.Random) -> None:
    """Remove, repeat, move, split or join a cell, or make text of code."""
    cells = notebook.get("cells")
    if not isinstance(cells, list) or not cells:
        return
    cell = cells.pop(dice.randrange(len(cells)))
    if dice.random() < 0.2 and isinstance(cell, dict):
        cell["cell_type"] = dice.choice(["code", "markdown", "raw", "heading"])
    elif dice.random() < 0.2 and isinstance(cell, dict):
        lines = _source(cell).split("\n")
        at = dice.randrange(len(lines))
        cells.append({**cell, "source": "\n".join(lines[at:])})
        cell["source"] = "\n".join(lines[:at])
    for _ in range(dice.randrange(3)):
        cells.insert(dice.randrange(len(cells) + 1), copy.deepcopy(cell))


def _in_json(notebook: dict[str, Any], dice: random.Random) -> None:
    """Replace or remove a value anywhere in the file."""
    node: Any = notebook
    while True:
        keys: list[Any] = list(node) if isinstance(node, dict) else list(range(len(node)))
        if not keys:
            return
        key = dice.choice(keys)
        if isinstance(node[key], dict | list) and node[key] and dice.random() < 0.8:
            node = node[key]
            continue
        if dice.random() < 0.3:
            del node[key]
        else:
            node[key] = copy.deepcopy(dice.choice(VALUES))  # else a later fault changes the table
        return


FAMILIES: dict[str, Callable[[dict[str, Any], random.Random], None]] = {
    "statement": _in_statement,
    "name": _in_name,
    "character": _in_text,
    "cell": _in_cells,
    "JSON": _in_json,
    "newer": _newer,
    "long": _long,
    "secret": _secret,
}


# ---------------------------------------------------------------------------------------------------------
# What becomes of a mutant


class _Slow(BaseException):
    """Raised in a conversion that takes too long; nothing in the package catches it."""


def outcome(folder: Path, case: Case) -> str:
    """Convert; return "converted", "declined", "refused" or, beginning with FAULT, what should not be."""
    path = folder / case.name
    path.write_text(json.dumps(case.notebook), encoding="utf-8")
    printed = io.StringIO()
    try:
        with (
            _watched() as done,
            _time_limit(),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("error")
            result = convert(path, **case.options)
    except Nb2ddpError as error:
        return _refused(str(error))
    except _Slow:
        return "FAULT slow"
    except Exception as error:
        return f"FAULT {type(error).__name__} in {_place(error)}: {str(error)[:200]}"
    finally:
        path.unlink()
    if done:
        return f"FAULT it does something: {done[0]}"
    if printed.getvalue():
        return f"FAULT it prints {printed.getvalue()[:80]!r}"
    return _judged(result, case.family)


def _refused(sentence: str) -> str:
    if not sentence.strip() or "INTERNAL" in sentence or "please report" in sentence:
        return f"FAULT no sentence to act on: {sentence[:200]!r}"
    return "refused"


def _judged(result: Conversion, family: str) -> str:
    """Return a conversion's status, or what is wrong with what it made."""
    for change in (*result.declined, *result.notes, *result.changes):
        if "please report" in change.why or not change.why.strip():
            return f"FAULT {change.why!r}"
    if result.status == "declined" and not result.declined:
        return "FAULT declined without a reason"
    newer = any("syntax of Python" in note.why for note in result.notes)
    try:
        for file, text in result.files.items():
            text.encode("utf-8")
            if file.endswith(".py") and file != SUPPORT and not newer:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # an escape such as "\d" is the notebook's own
                    ast.parse(text)
        shown = "\n".join([*report.lines(result), *report.github_lines(result, None)])
        shown = terminal_safe(shown) + json_text(report.as_json(result))
    except Exception as error:
        return f"FAULT {type(error).__name__} in what it made, {_place(error)}: {str(error)[:200]}"
    if raw := UNSAFE.search(shown):
        return f"FAULT {raw[0]!r} is shown raw"
    if family == "secret":
        shown += page(result, Options())
        shown += "\n".join(diff(result)) if result.script is not None else ""
        plain = html.unescape(re.sub(r"<[^>]*>", "", shown))
        for n in range(len(TOKEN) - 5):
            if TOKEN[n : n + 6] in plain:
                return f"FAULT a secret is shown: {TOKEN[n : n + 6]}"
    return result.status


@contextlib.contextmanager
def _time_limit() -> Iterator[None]:
    """Raise _Slow in the block when it has used SECONDS of CPU time."""

    def stop(*_: Any) -> None:
        raise _Slow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


_HARMFUL = frozenset(
    "os.system os.exec os.posix_spawn os.fork subprocess.Popen socket.connect os.remove os.rename os.mkdir "
    "os.rmdir shutil.rmtree os.putenv os.chdir".split()
)
_seen: list[str] | None = None


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _seen is None:
        return
    writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
    if writes or event in _HARMFUL:
        _seen.append(f"{event} {arguments[:1]!r}"[:200])


sys.addaudithook(_audit)


@contextlib.contextmanager
def _watched() -> Iterator[list[str]]:
    """Yield a list of the files that are written, and the processes that are started, in the block."""
    global _seen
    done: list[str] = []
    _seen = done
    try:
        yield done
    finally:
        _seen = None


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code if trace is not None else None
    return f"{Path(code.co_filename).name}:{code.co_name}" if code is not None else "nowhere"


def shrink(notebook: dict[str, Any], is_fault: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Remove cells, then lines, as long as the fault stays."""
    cells = notebook.get("cells")
    for at in reversed(range(len(cells) if isinstance(cells, list) else 0)):
        smaller = copy.deepcopy(notebook)
        del smaller["cells"][at]
        if is_fault(smaller):
            notebook = smaller
    for at, cell in enumerate(notebook["cells"] if isinstance(cells, list) else []):
        for line in reversed(range(len(_source(cell).split("\n")))):
            smaller = copy.deepcopy(notebook)
            if not isinstance(smaller["cells"][at], dict):
                break
            lines = _source(smaller["cells"][at]).split("\n")
            smaller["cells"][at]["source"] = "\n".join(lines[:line] + lines[line + 1 :])
            if is_fault(smaller):
                notebook = smaller
    return notebook
