"""What the notebook's own code writes on every rank is said once for each place; what is right there is not."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks import Ended, RankServer
from tests.unit.runtime.conftest import START

Run = Callable[..., Ended]


@pytest.fixture
def run(server: RankServer, tmp_path: Path) -> Callable[..., Ended]:
    """Run a script of which a model is divided: what it writes is looked at from then on."""

    def run_script(script: str, ranks: int = 2, **options: Any) -> Ended:
        watched = f"{START}ddp._patch_for_loops()\n"
        return server.run(tmp_path / f"run-{ranks}", watched + textwrap.dedent(script), ranks, **options)

    return run_script


FORMS = {
    "open": "open('log.txt', 'a').close()",
    "partial": "functools.partial(open, 'log.txt', 'w')().close()",
    "codecs": "codecs.open('log.txt', 'a', 'utf-8').close()",
    "os.open": "os.close(os.open('log.txt', os.O_CREAT | os.O_WRONLY | os.O_APPEND))",
    "pathlib": "pathlib.Path('log.txt').write_text('a')",
    "gzip": "gzip.open('log.txt', 'at').close()",
    "handler": "logging.handlers.WatchedFileHandler('log.txt').close()",
    "remove": "list(map(suppressed(os.remove), ['log.txt']))",
    "rmtree": "suppressed(shutil.rmtree)('log.txt')",
    "replace": "suppressed(os.replace)('none', 'log.txt')",
    "link": "suppressed(os.link)('none', 'log.txt')",
    "copy": "shutil.copy('made', 'log.txt')",
    "torch": "functools.partial(torch.save, 1)('log.txt')",
    "numpy": "[write('log.txt', [1]) for write in [numpy.savetxt]]",
    "sqlite3": "sqlite3.connect('log.txt').execute('create table if not exists a (b int)')",
}
IMPORTS = """
import codecs, contextlib, functools, gzip, logging.handlers, os, pathlib, shutil, sqlite3, numpy, torch
def suppressed(function):
    def call(*args):
        with contextlib.suppress(OSError): function(*args)
    return call
with ddp.main_process_first():
    open('made', 'w').close()
"""


def warnings(ended: Ended) -> list[str]:
    assert not any(ended.codes), ended.text
    return [line for rank in ended.ranks for line in rank.err.splitlines() if "nb2ddp: WARNING" in line]


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("form", FORMS)
def test_a_write_on_every_rank_is_said_once(run: Run, form: str, ranks: int) -> None:
    script = f"{IMPORTS}\n# ---- cell 7 ----\nfor _ in range(3):\n    {FORMS[form]}\nfrom_all = ddp.from_all_ranks(1)\n"
    (line,) = warnings(run(script, ranks))
    verb = "removes" if form in ("remove", "rmtree") else "writes"
    assert re.fullmatch(
        rf'nb2ddp: WARNING: script\.py, line \d+( \(cell 7\))? {verb} "log\.txt" on every rank, where the notebook '
        r"does so once: put it below `if ddp\.is_main_process:` in the script",
        line,
    )


def test_the_number_of_the_folder_that_a_run_is_in_is_no_ranks(run: Run) -> None:
    script = (
        f"{IMPORTS}\nos.mkdir('run_1') if rank == 0 else None\nddp.from_all_ranks(1)\nos.chdir('run_1')\n"
    )
    begins = "ddp.init_process_group()\n"  # where the run is found in its folder
    (line,) = warnings(run(f"{script}{begins}torch.save(rank, 'log.txt')\n"))
    assert 'writes "log.txt" on every rank' in line


@pytest.mark.parametrize("ranks", [0, 1, 2, 3])
def test_what_one_rank_may_write_or_every_rank_is_not_said(run: Run, ranks: int) -> None:
    script = """
    import importlib, logging, os, sqlite3, subprocess, sys, tempfile, torch
    with ddp.main_process_only() as is_main:
        if is_main:
            open("log.txt", "w").close()
            open("beside.py", "w").write("def read(path):\\n    return open(path).read()\\n")
            base = sqlite3.connect("m.db")
            base.execute("create table m (a int)")
            base.commit()
    with ddp.main_process_first():
        torch.save(1, "cache.pt")
    with ddp.in_turn():
        open("log.txt", "a").close()
    ddp.write_file("text.txt", "a")
    if ddp.is_main_process:
        open("log.txt", "a").close()
    sys.path.insert(0, ".")
    sys.dont_write_bytecode = False
    import beside
    beside.read("log.txt")
    torch.load("cache.pt")
    sqlite3.connect("m.db").execute("select * from m").fetchall()
    sqlite3.connect(":memory:").execute("create table m (a int)")
    for folder in (tempfile.mkdtemp(), tempfile.mkdtemp(dir=".")):
        open(f"{folder}/a.txt", "w").close()
        os.remove(f"{folder}/a.txt")
    with tempfile.TemporaryDirectory(dir=".") as folder:
        open(f"{folder}/a.txt", "w").close()
    tempfile.NamedTemporaryFile().write(b"a")
    with tempfile.NamedTemporaryFile(delete=False, dir=".") as file:
        own = file.name
    torch.save(1, own)
    os.remove(own)
    open(os.devnull, "w").close()
    open(f"rank_{rank}.txt", "w").close()
    def named():
        open(f"{rank}.txt", "w").close()
    named()
    for odd in ((), (None,), ("a",), ("a", "w", None), (1, 2, 3)):
        sys.audit("open", *odd)
        sys.audit("os.rename", *odd)
    os.makedirs("folder", exist_ok=True)
    reader, writer = os.pipe()
    open(writer, "w").write("a")
    subprocess.run([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    child = os.fork()
    if not child:
        open("of_a_child.txt", "a").close()
        os._exit(0)
    os.waitpid(child, 0)
    ddp.init_process_group()
    ddp.finish()
    open("end.txt", "a").close()
    """
    assert warnings(run(script, ranks)) == []


LIBRARY = '''
import pathlib, sys
with ddp.main_process_only() as is_main:
    if is_main:
        for folder in ("site-packages/alibrary", "own"):
            path = pathlib.Path(folder)
            path.mkdir(parents=True)
            (path / "writer.py").write_text("""
def write(path):
    with open(path, "a") as file:
        file.write("a")
def call(function, *args):
    function(*args)
""")
sys.path[:0] = ["site-packages/alibrary"]
import writer
'''


OWN = "del sys.modules['writer']; sys.path[:0] = ['own']\nimport writer"
THREAD = "import threading\nthread = threading.Thread(target=lambda: open('log.txt', 'a').close())"


@pytest.mark.parametrize(
    ("rest", "place"),
    [
        ("writer.write('log.txt')", None),
        ("writer.call(lambda: open('log.txt', 'a').close())", "script.py, line"),
        (f"{OWN}\nwriter.write('log.txt')", "(writer.py, line 3)"),
        (f"{THREAD}\nthread.start(); thread.join()", "script.py, line"),
    ],
    ids=["library", "a function that a library calls", "own module", "thread"],
)
def test_a_library_writes_for_itself(run: Run, rest: str, place: str | None) -> None:
    said = warnings(run(LIBRARY + rest))
    assert [place in line for line in said] == [True] if place else said == []


def test_no_more_than_five_places_are_said(run: Run) -> None:
    script = "".join(f"open('{name}.txt', 'a').close()\n" for name in "abcdefgh")
    said = warnings(run(script))
    assert [re.findall(r'"(.)\.txt"', line) for line in said] == [[name] for name in "abcde"]


def test_a_number_that_is_no_ranks_is_said(run: Run) -> None:
    assert len(warnings(run("open('run-1.txt', 'a').close()\n"))) == 1


def test_the_compiler_sees_only_the_notebooks_code(run: Run) -> None:
    script = """
    import torch
    @torch.compile(backend="eager")
    def step(x):
        y = x + 1
        open("log.txt", "a").close()
        return y * 2
    for size in range(1, 14):
        step(torch.ones(size))
    note(frames=[str(metrics.co_name) for metrics in torch._dynamo.utils.get_compilation_metrics()])
    """
    ended = run(script)
    said = warnings(ended)
    assert said
    assert all('writes "log.txt"' in line for line in said)
    frames = ended.notes[1]["frames"]
    assert frames
    assert all("step" in name for name in frames)
