"""What functions of modules beside the notebook do is judged by their text, which is never run."""

from __future__ import annotations

import time
from pathlib import Path
from textwrap import dedent

import nbformat
import pytest

from nb2ddp.conversion.pipeline import Conversion, convert
from tests.support.helpers import notebook

TRAIN = "from trl import SFTTrainer\ntrainer = SFTTrainer(model)\ntrainer.train()"
SAVES = """
    import os, shutil
    raise SystemExit("a module was run")

    def save(rows, name):
        os.makedirs("out", exist_ok=True)
        with open(f"out/{name}.txt", "w") as file:
            file.write(str(rows))
        shutil.rmtree("out")
"""
GATE = "with ddp.main_process_only() as is_main:  # nb2ddp: only rank 0 writes\n    if is_main:\n        "


def beside(folder: Path, modules: dict[str, str], *cells: str) -> Conversion:
    for name, text in modules.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(dedent(text), encoding="utf-8")
    nbformat.write(notebook(*cells), folder / "train.ipynb")
    return convert(folder / "train.ipynb")


def code_of(conversion: Conversion) -> str:
    assert conversion.status == "converted", conversion.declined
    assert conversion.script is not None
    return conversion.script.text


@pytest.mark.parametrize(
    ("place", "imports", "call"),
    [
        ("files.py", "from files import save", "save(1, 'a')"),
        ("files.py", "import files as f", "f.save(1, 'a')"),
        ("files.py", "from files import *", "save(1, 'a')"),
        ("files.py", "import files as F", "F.save(1, 'a')"),
        ("Files.py", "import Files", "Files.save(1, 'a')"),
        ("pack/IO.py", "from pack import IO", "IO.save(1, 'a')"),
        ("pack/files.py", "import pack.files", "pack.files.save(1, 'a')"),
        ("pack/__init__.py", "from pack import save", "save(1, 'a')"),
        ("src/files.py", "import sys\nsys.path.append('src')\nfrom files import save", "save(1, 'a')"),
        ("../files.py", "import sys\nsys.path.insert(0, '..')\nfrom files import save", "save(1, 'a')"),
    ],
)
def test_what_only_writes_is_rank_0s(tmp_path: Path, place: str, imports: str, call: str) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    code = code_of(beside(folder, {place: SAVES}, imports, f"for name in 'ab':\n    {call}", TRAIN))
    assert call in code
    assert code.index("main_process_only") < code.index(call)


def test_a_name_is_followed_to_the_module_that_defines_it(tmp_path: Path) -> None:
    package = {"pack/__init__.py": "from .inner.files import save", "pack/inner/files.py": SAVES}
    code = code_of(beside(tmp_path, package, "from pack import save\nsave(1, 'a')", TRAIN))
    assert f"{GATE}save(1, 'a')" in code


def test_a_function_that_calls_one_of_another_module_writes(tmp_path: Path) -> None:
    modules = {
        "files.py": SAVES,
        "report.py": "from files import save\ndef report(rows):\n    save(rows, 'a')",
    }
    code = code_of(beside(tmp_path, modules, "import report\nreport.report([1]);", TRAIN))
    assert f"{GATE}report.report([1])" in code


def test_modules_that_import_one_another_end(tmp_path: Path) -> None:
    modules = {
        "a.py": "import b\ndef f(x):\n    return b.g(x)\ndef h(x):\n    h(x)\n    open('x', 'w').write(x)",
        "b.py": "import a\ndef g(x):\n    return a.f(x) or a.h(x)",
    }
    code = code_of(beside(tmp_path, modules, "from a import f\nf('1');", TRAIN))
    assert f"{GATE}f('1')" in code


def test_a_result_is_made_by_each_rank_in_its_turn(tmp_path: Path) -> None:
    module = "def prepare(path):\n    open(path, 'w').write('x')\n    return path"
    cells = ("from data import prepare\nmodel = load(prepare('rows'))", TRAIN)
    assert "with ddp.in_turn():" in code_of(beside(tmp_path, {"data.py": module}, *cells))


@pytest.mark.parametrize(
    "body",
    [
        "history.append(name)",
        "global last\n    last = name",
        "import os\n    os.environ['LAST'] = name",
        "for row in history.rows:\n        row['name'] = name",
        "last = history.rows[0]\n    last['name'] = name",
        "history.sort_values('name', inplace=True)",
        "history.add_module(name, 1)",
        "setattr(history, name, 1)",
        "vars(history).update(a=1)",
        "vars(history)['a'] = 1",
        "import os\n    os.chdir('..')",
        "from os import chdir\n    chdir('..')",
        "import warnings\n    warnings.simplefilter('error')",
        "import numpy as np\n    np.seterr(all='raise')",
        "import numpy as np\n    np.copyto(history, 1)",
        "import torch\n    torch.set_default_dtype(torch.float64)",
        "from torch import nn\n    nn.init.zeros_(history[0])",
    ],
)
def test_what_changes_values_too_every_rank_runs_in_its_turn(tmp_path: Path, body: str) -> None:
    module = f"last = ''\ndef save(history, name):\n    open(name, 'w').write(name)\n    {body}"
    cells = ("import files\nhistory = []\nfiles.save(history, 'a')", TRAIN)
    assert "with ddp.in_turn():" in code_of(beside(tmp_path, {"files.py": module}, *cells))


@pytest.mark.parametrize(("body", "is_turn"), [("pass", False), ("self.rows += [row]", True)])
def test_a_method_is_judged_by_its_body_and_not_by_its_name(tmp_path: Path, body: str, is_turn: bool) -> None:
    """A set's add() would change it; this one writes only, and what it writes unseen, in C++, is no turn's."""
    log = f"""
        import pyarrow.parquet
        class Log:
            def __init__(self):
                self.rows = []
            def add(self, row):
                pyarrow.parquet.write_table(row, "rows")
                {body}
    """
    use = "import logs\nlog = logs.Log()\nlog.add(1);\nlog.add(2);"
    converted = beside(tmp_path, {"logs.py": log}, use, TRAIN)
    code, said = code_of(converted), [note.why for note in converted.notes]
    assert (f"{GATE}log.add(1)" in code, "ddp.in_turn()" in code) == (not is_turn, is_turn)
    assert any("this writes on every rank, because its result is used" in text for text in said) == is_turn


@pytest.mark.parametrize(
    "body",
    [
        "history.to_csv(name)",
        "for image in history:\n        image.save(name)",
        "history.add_scalar('loss', 1.0)",
        "rows = list(history)\n    rows.sort()\n    json.dump(rows, file)",
        "plt.style.use('ggplot')\n    f, axes = plt.subplots()\n    axes.set_title(name)\n    f.savefig(name)",
        "json.dump(vars(history), file)",
        "for row in history:\n        file.write(row)",
        "torch.save(history.state_dict(), name)",
    ],
)
def test_what_only_reads_what_it_is_given_is_rank_0s(tmp_path: Path, body: str) -> None:
    module = "import json, torch\nfrom matplotlib import pyplot as plt\ndef save(history, name):\n"
    module += f"    file = open(name, 'w')\n    {body}\n    file.close()"
    cells = ("import files\nhistory = []\nfiles.save(history, 'a')", TRAIN)
    assert f"{GATE}files.save(history, 'a')" in code_of(beside(tmp_path, {"files.py": module}, *cells))


def test_what_draws_from_a_generator_that_it_is_given_every_rank_runs(tmp_path: Path) -> None:
    modules = {"files.py": "def save(rng, name):\n    open(name, 'w').write(str(rng.normal()))"}
    cells = ("import files, numpy as np\nrng = np.random.default_rng(0)\nfiles.save(rng, 'a')", TRAIN)
    assert "with ddp.in_turn():" in code_of(beside(tmp_path, modules, *cells))


def test_what_else_stands_on_its_line_every_rank_runs(tmp_path: Path) -> None:
    cells = ("import files", "optimizer.step(); files.keep(1, 'a')\nprint(1)", TRAIN)
    modules = {"files.py": SAVES.replace("def save", "def keep")}
    assert "with ddp.in_turn():" in code_of(beside(tmp_path, modules, *cells))


@pytest.mark.parametrize(
    "body", ["model(name)", "model.eval()", "loss = model.loss()\n    loss.backward()", "model.fit(name)"]
)
def test_what_computes_with_a_model_too_is_named_and_left(tmp_path: Path, body: str) -> None:
    module = f"def save(model, name):\n    open(name, 'w').write(name)\n    {body}"
    conversion = beside(tmp_path, {"files.py": module}, "import files\nfiles.save(net, 'a')", TRAIN)
    assert "\nfiles.save(net, 'a')" in code_of(conversion)
    (note,) = (note for note in conversion.notes if note.rule == "rank-zero")
    assert note.why.startswith("this function writes on every rank")
    assert note.place is not None
    assert note.place.line == 2


def test_a_training_function_divides_the_batches_of_a_model_that_an_optimizer_names(tmp_path: Path) -> None:
    module = (
        "def train(net, opt, rows):\n    for x in rows:\n        net(x).sum().backward()\n        opt.step()"
    )
    net = "net = torch.nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    cells = (
        "import torch, mine",
        f"{net}mine.train(net, opt, rows)",
        f"{net}for x in rows:\n    net(x).sum().backward()",
    )
    assert beside(tmp_path, {"mine.py": module}, *cells).notes == []
    other = "mine.train(torch.nn.Linear(4, 1), torch.optim.SGD, rows)"
    (note,) = beside(tmp_path, {"mine.py": module}, cells[0], other, *cells[2:]).notes
    assert note.why.startswith("each rank trains it whole")


def test_a_function_that_trains_and_saves_is_no_work_of_rank_0(tmp_path: Path) -> None:
    module = "import torch\ndef train_all(net, rows, path):\n    net(rows).sum().backward()\n    torch.save(net, path)"
    cells = ("import torch, mine\nother = torch.nn.Linear(4, 1)\nmine.train_all(other, rows, 'a')", TRAIN)
    first, second = (note.why for note in beside(tmp_path, {"mine.py": module}, *cells).notes)
    assert first.startswith("each rank trains it whole")
    assert second.startswith("this function writes on every rank")


@pytest.mark.parametrize(
    ("modules", "call"),
    [
        ({}, "from files import save\nsave(1, 'a')"),
        ({"files.py": "def save(:"}, "from files import save\nsave(1, 'a')"),
        ({"files.py": "def save(x, y):\n    return x"}, "from files import save\nsave(1, 'a')"),
        (
            {"files.py": "def save(t):\n    t.save_model('out')"},
            f"{TRAIN}\nfrom files import save\nsave(trainer)\ntrainer.train()",
        ),
    ],
)
def test_all_else_is_left_alone(tmp_path: Path, modules: dict[str, str], call: str) -> None:
    conversion = beside(tmp_path, modules, f"{call};", TRAIN)
    assert f"\n{call.splitlines()[-1]}" in code_of(conversion)
    assert not [note for note in conversion.notes if note.rule == "rank-zero"]


LOG = """
    class Log:
        def __init__(self, path):
            self.best, self.file = 9.0, open(path, "w")

        def line(self, row):
            with open("rows.txt", "a") as file:
                file.write(row)

        def keep(self, row):
            self.best = row
            self.line(row)

    class Best:
        def __call__(self, row):
            with open("best.txt", "w") as file:
                file.write(row)
"""


def test_what_an_object_of_a_module_writes_is_seen(tmp_path: Path) -> None:
    """A file that it keeps open is opened by each rank in its turn, so that rank 0's alone is left."""
    cells = (
        "from log import Best, Log\nlog = Log('log.txt')",
        "log.line('a');",
        "log.keep('b')\nprint(log.best)",
        "best = Best()\nbest('c')\nprint(best)",
        TRAIN,
    )
    code = code_of(beside(tmp_path, {"log.py": LOG}, *cells))
    turn = "with ddp.in_turn():  # nb2ddp: the ranks write one after another\n    "
    assert f"{turn}log = Log('log.txt')" in code
    assert f"best = Best()\n{GATE}best('c')" in code
    assert f"{GATE}log.line('a')" in code
    assert f"{turn}log.keep('b')" in code


HELD = """
    from dataclasses import dataclass

    @dataclass
    class Log:
        path: str

        def __post_init__(self):
            self.line("begin")

        @classmethod
        def begin(cls, path):
            return cls(path)

        @staticmethod
        def line(row):
            with open("rows.txt", "a") as file:
                file.write(row)

    class Stop:
        def __call__(self, loss):
            open("best.txt", "w").write(str(loss))
            return loss > 1

    class Timed:
        def __enter__(self):
            open("begin.txt", "w").close()

        def __exit__(self, *error):
            open("end.txt", "w").close()
"""


def test_what_objects_write_that_are_made_held_or_opened_is_seen(tmp_path: Path) -> None:
    cells = (
        "from log import Log, Stop, Timed\nLog('a');",
        "Log.line('b');",
        "class Run:\n    def __init__(self):\n        self.stop, self.line = Stop(), []\nrun = Run()\nrun.stop(2);",
        "with Timed():\n    print(3)",
        "log = Log.begin('c')",
        "log.line('d');",
        TRAIN,
    )
    code = code_of(beside(tmp_path, {"log.py": HELD}, *cells))
    for line in ("Log('a')", "Log.line('b')", "run.stop(2)", "with Timed():", "log.line('d')"):
        assert f"{GATE}{line}" in code


WRITERS = (
    "def make(path):\n    from torch.utils.tensorboard import SummaryWriter\n    return SummaryWriter(path)"
)


@pytest.mark.parametrize(
    "imports", ["from logs import make", "from pack import make", "import pack.logs as logs"]
)
def test_event_files_of_a_module_are_rank_0s(tmp_path: Path, imports: str) -> None:
    modules = {"logs.py": WRITERS, "pack/__init__.py": "from .logs import make", "pack/logs.py": WRITERS}
    code = code_of(beside(tmp_path, modules, imports, "writer = make('runs')", TRAIN))
    writer = 'ddp.event_writer("torch.utils.tensorboard.SummaryWriter")'
    assert code.index("ddp.init()") < code.index(writer) < code.index(imports)


BASES = """
    import sqlite3
    def connect(path, timeout=5):
        return sqlite3.connect(path, timeout=timeout)

    class Store:
        def __init__(self, path):
            self.base = connect(path)
            self.other = sqlite3.connect(path)

    def fixed():
        return sqlite3.connect("log.db")
"""


def test_a_module_opens_a_copy_of_a_database_on_other_ranks(tmp_path: Path) -> None:
    opens = "base = connect('a.db')\nstore = Store(path='b.db')\nlast = fixed()"
    conversion = beside(tmp_path, {"bases.py": BASES}, f"from bases import *\n{opens}", TRAIN, "print(base)")
    code = code_of(conversion)
    assert "base = connect(ddp.own_file('a.db'))" in code
    assert "store = Store(path=ddp.own_file('b.db'))" in code
    (note,) = (note for note in conversion.notes if note.rule == "rank-zero")
    assert note.why.startswith("all ranks open this function's database")
    assert note.place is not None
    assert note.place.line == 4


NAMES = """
    import datetime, os, time, uuid
    from pathlib import Path

    def stamp():
        return datetime.datetime.now().strftime("%Y-%m-%d")

    def folder(root, name=None):
        path = Path(root) / (name or f"{stamp()}-{uuid.uuid4().hex[:6]}")
        path.mkdir(parents=True)
        (path / "made").write_text(stamp())
        return path

    def report(path):
        print(f"{stamp()}: reads {path}")
        return [path]

    def measured(rows):
        begun = time.time()
        rows.sort()
        return f"{time.time() - begun:.1f} seconds"

    def trained(model):
        model(1)
        return f"run-{time.time()}"
"""


@pytest.mark.parametrize("call", ["stamp()", "folder('runs')", "folder(root='runs')"])
def test_a_name_that_a_module_draws_is_rank_0s(tmp_path: Path, call: str) -> None:
    cells = (f"import names, os\nname = f'runs/{{names.{call}}}'\nos.makedirs(name, exist_ok=True)", TRAIN)
    code = code_of(beside(tmp_path, {"names.py": NAMES}, *cells))
    assert f"name = f'runs/{{ddp.from_main_process(lambda: names.{call})}}'" in code
    assert "in_turn" not in code


@pytest.mark.parametrize("call", ["report('a')", "measured(rows)", "trained(net)"])
def test_what_a_module_gives_besides_a_name_each_rank_makes(tmp_path: Path, call: str) -> None:
    cells = (f"from names import *\nmade = {call}\nprint(made)", TRAIN)
    assert f"\nmade = {call}" in code_of(beside(tmp_path, {"names.py": NAMES}, *cells))


def test_a_module_that_the_notebook_writes_goes_first(tmp_path: Path) -> None:
    text = dedent(SAVES).strip()
    cells = (f"%%writefile files.py\n{text}\n", "import files\nfiles.save(1, 'a')", TRAIN)
    assert f"{GATE}files.save(1, 'a')" in code_of(
        beside(tmp_path, {"files.py": "def save(x, y): pass"}, *cells)
    )


def test_a_package_that_the_notebook_writes_is_followed(tmp_path: Path) -> None:
    text = dedent(SAVES).strip()
    writes = (
        "%%writefile pack/__init__.py\nfrom .files import save\n",
        f"%%writefile pack/files.py\n{text}\n",
    )
    code = code_of(beside(tmp_path, {}, *writes, "import pack\npack.save(1, 'a');", TRAIN))
    assert f"{GATE}pack.save(1, 'a')" in code


def test_a_package_that_the_notebook_writes_and_that_keeps_a_file_open_is_named(tmp_path: Path) -> None:
    writes = "%%writefile pack/__init__.py\nlog = open('log.txt', 'w')\n"
    (note,) = beside(tmp_path, {}, writes, "import pack", TRAIN).notes
    assert note.why.startswith("pack/__init__.py keeps a file open")


def test_a_pipe_is_no_module(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "files.py")
    began = time.monotonic()
    beside(tmp_path, {}, "import files\nfiles.save(1, 'a')", TRAIN)
    assert time.monotonic() - began < 20
