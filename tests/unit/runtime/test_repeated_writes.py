"""What every rank writes is said once for each place, when the ranks compare it; what one rank writes is not."""

from __future__ import annotations

import re
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks import Ended, RankServer
from tests.unit.runtime.conftest import RANK_COUNTS, START

Run = Callable[..., Ended]


@pytest.fixture
def run(server: RankServer, tmp_path: Path) -> Callable[..., Ended]:
    """Run a script, and compare in the end what its ranks have written."""

    def run_script(script: str, ranks: int = 2, **options: Any) -> Ended:
        compared = f"{START}{textwrap.dedent(script)}\nddp._checks.run_last() if ddp._run.meets else None\n"
        return server.run(tmp_path / f"run-{ranks}", compared, ranks, **options)

    return run_script


def test_a_function_that_refers_to_the_module_can_be_pickled(run: Run) -> None:
    """Datasets pickles what a generator or a mapped function refers to."""
    ended = run("import pickle\nnote(same=pickle.loads(pickle.dumps(ddp)) is ddp)")
    assert [rank.notes for rank in ended.ranks] == [{"same": True}] * 2, ended.text


FORMS = {
    "open": "open('log.txt', 'a').close()",
    "partial": "functools.partial(open, 'log.txt', 'w')().close()",
    "codecs": "codecs.open('log.txt', 'a', 'utf-8').close()",
    "os.open": "os.close(os.open('log.txt', os.O_CREAT | os.O_WRONLY | os.O_APPEND))",
    "pathlib": "pathlib.Path('log.txt').write_text('a')",
    "gzip": "gzip.open('log.txt', 'at').close()",
    "remove": "list(map(suppressed(os.remove), ['log.txt']))",
    "rmtree": "suppressed(shutil.rmtree)('log.txt')",
    "replace": "suppressed(os.replace)('none', 'log.txt')",
    "link": "suppressed(os.link)('none', 'log.txt')",
    "copy": "shutil.copy('made', 'log.txt')",
    "torch": "functools.partial(torch.save, 1)('log.txt')",
    "numpy": "[write('log.txt', [1]) for write in [numpy.savetxt]]",
}
IMPORTS = """
import codecs, contextlib, functools, gzip, os, pathlib, shutil, numpy, torch
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


@pytest.mark.parametrize("ranks", RANK_COUNTS)
@pytest.mark.parametrize("form", FORMS)
def test_a_write_on_every_rank_is_said_once(run: Run, form: str, ranks: int) -> None:
    script = f"{IMPORTS}\n# ---- cell 7 ----\nfor _ in range(3):\n    {FORMS[form]}\nfrom_all = ddp.from_all_ranks(1)\n"
    (line,) = warnings(run(script, ranks))
    verb = "removes" if form in ("remove", "rmtree") else "writes"
    assert re.fullmatch(
        rf'nb2ddp: WARNING: script\.py, line \d+( \(cell 7\))? {verb} "log\.txt" on every rank, where the notebook '
        r"does so once: put it below `if ddp\.is_main_process:`, or `with ddp\.main_process_first\(\):` if all use "
        r"its result",
        line,
    )


@pytest.mark.parametrize("form", ["open('log.txt', 'a').close()", FORMS["torch"], FORMS["numpy"]])
def test_a_write_before_a_model_is_divided_is_said(server: RankServer, tmp_path: Path, form: str) -> None:
    said = warnings(server.run(tmp_path, f"{START}{IMPORTS}\n{form}\nddp.check_replicas()\n", 2))
    assert len(said) == 1
    assert 'writes "log.txt" on every rank' in said[0]


def test_a_write_between_the_comparison_of_the_ranks_and_their_end_is_said(run: Run) -> None:
    written = "open('log.txt', 'a').close()"
    said = warnings(
        run(f"ddp.check_replicas()\n{written}\nddp.finish()\n{written}\nopen('late.txt', 'w').close()\n")
    )
    assert len(said) == 1
    assert 'writes "log.txt" on every rank' in said[0]


def test_a_folder_that_another_rank_has_made_is_named(server: RankServer, tmp_path: Path) -> None:
    script = """
        import os
        os.makedirs("made", exist_ok=True)
        os.mkdir("folds")
        ddp.check_replicas()
    """
    ended = server.run(tmp_path, START + textwrap.dedent(script), 2)
    assert sorted(ended.codes) != [0, 0]
    assert ended.text.count("FileExistsError: [Errno 17] File exists: 'folds'") == 1
    assert (
        '"folds" is new, from another rank perhaps: put it below `if ddp.is_main_process:`, or' in ended.text
    )


def test_a_folder_that_was_there_before_is_not_named(server: RankServer, tmp_path: Path) -> None:
    (tmp_path / "folds").mkdir()
    time.sleep(2)
    ended = server.run(tmp_path, f"{START}import os\nos.mkdir('folds')\n", 2)
    assert "File exists: 'folds'" in ended.text
    assert "is new, from another rank" not in ended.text


def test_caches_and_temporary_files_are_no_repeated_writes(server: RankServer, tmp_path: Path) -> None:
    script = """
        import os
        import tempfile
        import datasets
        rows = datasets.Dataset.from_dict({"x": list(range(20))})
        with ddp.main_process_first():
            if not os.path.isdir("rows"):
                rows.save_to_disk("rows")
        rows = datasets.load_from_disk("rows").shuffle(seed=1).train_test_split(0.5, seed=1)["train"]
        with tempfile.NamedTemporaryFile(dir="rows") as file:
            file.write(b"kept")
        note(rows=len(rows))
        ddp.check_replicas()
    """
    ended = server.run(tmp_path, START + textwrap.dedent(script), 2)
    assert warnings(ended) == []
    assert [notes["rows"] for notes in ended.notes] == [10, 10]


PROGRAM_IN_A_THREAD = """
import os, subprocess, threading
def start(where):
    subprocess.run(f"echo {where} >> log.txt", shell=True)
def start_of_python():
    os.system("true")
for target, args in ((start, ("thread",)), (start_of_python, ())):
    thread = threading.Thread(target=target, args=args)
    thread.start()
    thread.join()
subprocess.run(["true"])  # all ranks read its result
ddp._checks.run_last() if ddp._run.meets else None
with ddp.main_process_only() as is_main:
    if is_main:
        thread = threading.Thread(target=start, args=("main",))
        thread.start()
        thread.join()
"""


def test_a_program_that_a_thread_of_every_rank_starts_is_said(run: Run) -> None:
    said = warnings(run(PROGRAM_IN_A_THREAD))
    assert len(said) == 2, said
    assert 'starts "/bin/sh" on every rank, where the notebook does so once' in said[0]
    assert 'starts "true" on every rank' in said[1]


PROGRAM_IN_FORWARD = """
import subprocess, torch
class Net(torch.nn.Linear):
    def forward(self, x):
        if x.max() > 3:
            subprocess.run("echo >> log.txt", shell=True)
        return super().forward(x)
net = ddp.parallelize(Net(4, 2))
for step in range(4):
    net(torch.full((4, 4), 4.0 + step)).sum().backward()
with open("log.txt") as file:
    note(lines=len(file.readlines()))
"""


def test_a_program_that_forward_starts_is_not_started_by_checks(run: Run) -> None:
    ended = run(PROGRAM_IN_FORWARD)
    said = warnings(ended)
    assert ended.notes[0]["lines"] <= 8  # one of each rank in each step
    assert 'whole batches, which saves no time: forward() starts "/bin/sh"' in said[0]
    assert 'starts "/bin/sh" on every rank, where the notebook does so once' in said[1]


def test_the_number_of_the_folder_that_a_run_is_in_is_no_ranks(run: Run) -> None:
    script = (
        f"{IMPORTS}\nos.mkdir('run_1') if rank == 0 else None\nddp.from_all_ranks(1)\nos.chdir('run_1')\n"
    )
    (line,) = warnings(run(f"{script}torch.save(rank, 'log.txt')\n"))
    assert 'writes "log.txt" on every rank' in line


@pytest.mark.parametrize("ranks", [0, pytest.param(1, marks=pytest.mark.thorough), *RANK_COUNTS])
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
    for odd in ((), (None,), ("a",), ("a", None, None), (1, 2, 3)):
        sys.audit("open", *odd)
        sys.audit("os.rename", *odd)
    os.makedirs("folder", exist_ok=True)
    reader, writer = os.pipe()
    open(writer, "w").write("a")
    subprocess.run([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    subprocess.run(["true"])
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


def test_a_folder_that_each_rank_has_for_itself_may_go(run: Run) -> None:
    script = """
    import os, tempfile
    with tempfile.TemporaryDirectory() as folder:
        open(f"{folder}/a.txt", "w").close()
    """
    assert warnings(run(script)) == []


@pytest.mark.parametrize(
    "write",
    [
        "import threading as t\nt.Thread(target=lambda: open('log.txt', 'a').close()).run()",
        "import functools\nlist(map(functools.partial(open, mode='a'), ['log.txt']))",
    ],
    ids=["a thread", "a function that Python calls"],
)
def test_whoever_writes(run: Run, write: str) -> None:
    (line,) = warnings(run(write))
    assert 'writes "log.txt"' in line


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
