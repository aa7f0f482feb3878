"""A seeded fuzzer: notebooks with faults in their JSON and their statements, under varied options."""

from __future__ import annotations

import ast
import copy
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nb2ddp.conversion.pipeline import convert
from nb2ddp.errors import Nb2ddpError
from tests.unit.attack.nasty import TEXTS

SECONDS = 10.0  # of CPU time, for one conversion
STATEMENTS = [
    *(
        "x = 1",
        "return 1",
        "await f()",
        "async with a: pass",
        "break",
        "global model",
        "del trainer",
        "yield",
    ),
    *("from __future__ import annotations", "import *", "!ls {x", "!cd /", "%cd /", "%%bash\nls", "%env A=1"),
    *(
        "%time trainer.train()",
        "x = !ls",
        "?x",
        "x?",
        "%%capture out",
        "%%time",
        "!pip install '",
        "    x = 1",
    ),
    *(
        "if True:\n        x = 1\n    y = 2",
        "f'{d['a']}'",
        "type X = int",
        "for i in range(3):",
        "'''",
        "(",
        "\\",
    ),
    *(
        "model = model",
        "trainer.train()",
        "trainer = trainer",
        "while True:\n    trainer.train()",
        "\x0c",
        "\0",
    ),
    *(
        "class Trainer: pass",
        "trainer.train = None",
        "lambda: trainer.train()",
        "with trainer: trainer.train()",
    ),
    *(
        "try:\n    trainer.train()\nexcept: pass",
        "match model:\n    case x: pass",
        "model: int",
        "model += 1",
    ),
    *(
        "os.environ['X'] = '1'",
        "torch.cuda.set_device(0)",
        "x = 'cuda:0'",
        "exit()",
        "print = None",
        "rank = 3",
    ),
]
VALUES: list[Any] = [None, True, -1, 1e308, "", "x", [], {}, [[]], {"a": {}}, "\ud800", "\0", *TEXTS]


def mutate(notebook: dict[str, Any], seed: int) -> tuple[dict[str, Any], str, dict[str, Any]]:
    """Return a notebook with one to four faults, a name for its file, and options."""
    dice = random.Random(seed)
    notebook = copy.deepcopy(notebook)
    for _ in range(dice.randint(1, 4)):
        dice.choice([_in_statement] * 4 + [_in_text] * 2 + [_in_cells] * 3 + [_in_json])(notebook, dice)
    options = {
        "nproc": dice.choice([1, 2, 3, 64]),
        "batch": dice.choice(["preserve", "scale"]),
        "wrap": dice.choice(["explicit", "trainer"]),
        "strategy": dice.choice(["ddp", "ddp", "ddp", "balanced"]),
        "gpu_memory": dice.choice([1.0, 15.0, 80.0]),
        "owner": dice.choice(TEXTS) if dice.random() < 0.03 else None,
        "title": dice.choice([None, None, *TEXTS]),
    }
    name = dice.choice(["x", "x", *TEXTS]).replace("/", "|").replace("\ud83d", "")[:60]
    return notebook, f"{name}.ipynb", options


def _code(notebook: dict[str, Any], dice: random.Random) -> dict[str, Any] | None:
    cells = notebook.get("cells")
    cells = cells if isinstance(cells, list) else []
    cells = [
        c for c in cells if isinstance(c, dict) and isinstance(c.get("source"), str | list) and c["source"]
    ]
    return dice.choice(cells) if cells else None


def _in_statement(notebook: dict[str, Any], dice: random.Random) -> None:
    """Insert, remove, repeat or move a line."""
    if (cell := _code(notebook, dice)) is None:
        return
    source = cell["source"]
    lines = ("".join(map(str, source)) if isinstance(source, list) else source).split("\n")
    at = dice.randrange(len(lines))
    match dice.randrange(5):
        case 0:
            lines.insert(at, dice.choice(STATEMENTS))
        case 1:
            del lines[at]
        case 2:
            lines.insert(at, lines[at])
        case 3:
            lines.insert(dice.randrange(len(lines)), lines.pop(at))
        case _:
            lines[at] = " " * dice.randint(1, 5) + lines[at]
    cell["source"] = "\n".join(lines)


def _in_text(notebook: dict[str, Any], dice: random.Random) -> None:
    """Put a character somewhere, or take some away."""
    if (cell := _code(notebook, dice)) is None:
        return
    source = "".join(map(str, cell["source"])) if isinstance(cell["source"], list) else cell["source"]
    at = dice.randrange(len(source) + 1)
    new = dice.choice([*"()[]{}'\"\\\n\t #!%?=:;,.@$\0\x0c\x1b\u2028\ufeff", "\ud800", "'''", "é", ""])
    cell["source"] = source[:at] + new + source[at + dice.randint(0, 6) :]


def _in_cells(notebook: dict[str, Any], dice: random.Random) -> None:
    """Remove, repeat or move a cell."""
    cells = notebook.get("cells")
    if not isinstance(cells, list) or not cells:
        return
    cell = cells.pop(dice.randrange(len(cells)))
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
            node[key] = dice.choice(VALUES)
        return


def outcome(folder: Path, notebook: dict[str, Any], name: str, options: dict[str, Any]) -> str:
    """Convert; return "converted", "declined", "refused" or, beginning with FAULT, what should not be."""
    path = folder / name
    path.write_text(json.dumps(notebook), encoding="utf-8")
    start = time.process_time()
    try:
        result = convert(path, **options)
    except Nb2ddpError as error:
        return "refused" if str(error).strip() else "FAULT no sentence"
    except Exception as error:
        place = _place(error)
        return f"FAULT {type(error).__name__} in {place}: {error}"
    finally:
        path.unlink()
    if time.process_time() - start > SECONDS:
        return "FAULT slow"
    if any("please report" in change.why for change in result.declined):
        return f"FAULT {result.declined[0].why}"
    if result.status == "converted" and not any("syntax of Python" in note.why for note in result.notes):
        for file, text in result.files.items():
            if file.endswith(".py"):
                ast.parse(text)
    return result.status


def _place(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code if trace is not None else None
    return f"{Path(code.co_filename).name}:{code.co_name}" if code is not None else "nowhere"


def shrink(notebook: dict[str, Any], is_fault: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Remove cells as long as the fault stays."""
    cells = notebook.get("cells")
    for at in reversed(range(len(cells) if isinstance(cells, list) else 0)):
        smaller = copy.deepcopy(notebook)
        del smaller["cells"][at]
        if is_fault(smaller):
            notebook = smaller
    return notebook
