"""Ranks meet in torchrun's store: what rank 0 returns or raises reaches every rank, and no rank waits in vain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ranks import Ended, RankServer
from tests.unit.runtime.conftest import RANK_COUNTS

Run = Callable[..., Ended]

# What rank 0 raises; the last two cannot be pickled as they are.
RAISES = """
import subprocess
class OwnError(Exception):
    def __init__(self, number, *, text):
        self.number, self.text = number, text
        super().__init__(f"{number} {text}")
def make():
    class Local(Exception):
        pass
    return Local
Local = make()
RAISES = [
    lambda: open("nowhere"),
    lambda: {}["key"],
    lambda: raise_(OwnError(3, text="own")),
    lambda: subprocess.run(["false"], check=True),
    lambda: next(iter([])),
    lambda: raise_(KeyboardInterrupt()),
    lambda: raise_(SystemExit(4)),
    lambda: raise_(GeneratorExit()),
    lambda: b"\\xff".decode(),
    lambda: raise_(ValueError("text", lambda: 1)),
    lambda: raise_(Local("local")),
]
def raise_(error):
    raise error
for fail in RAISES:
    try:
        CALL
        note(kind="none")
    except BaseException as error:
        note(kind=type(error).__name__, text=str(error))
note(after=ddp.from_main_process(lambda: 7))
"""
WAYS = {
    "only": "with ddp.main_process_only() as is_main:\n            if is_main:\n                fail()",
    "first": "with ddp.main_process_first():\n            fail() if rank == 0 else note(ran=True)",
    "value": "ddp.from_main_process(fail)",
}


@pytest.mark.parametrize("way", WAYS)
def test_an_exception_of_rank_0_is_raised_on_every_rank(run: Run, way: str) -> None:
    ended = run(RAISES.replace("CALL", WAYS[way]))
    assert ended.codes == [0, 0], ended.text
    first, second = (rank.history for rank in ended.ranks)
    assert [note.get("kind") for note in first] == [
        *("FileNotFoundError", "KeyError", "OwnError", "CalledProcessError", "StopIteration"),
        *(
            "KeyboardInterrupt",
            "SystemExit",
            "GeneratorExit",
            "UnicodeDecodeError",
            "ValueError",
            "Local",
            None,
        ),
    ]
    assert first[:9] == second[:9]
    assert second[9]["kind"] == "ValueError"
    assert second[9]["text"] == first[9]["text"] or "text" in second[9]["text"]
    assert second[10] == {"kind": "Exception", "text": "local"}
    assert first[11] == second[11] == {"after": 7}


HANDLED = {
    "an exception that holds a file": """
        import urllib.error
        try:
            with ddp.main_process_only() as is_main:
                if is_main:
                    raise urllib.error.HTTPError("https://a.b", 404, "gone", {}, open("/dev/null", "rb"))
        except urllib.error.HTTPError as error:
            note(code=error.code, text=str(error))
        """,
    "an exception of several": """
        import threading
        try:
            with ddp.main_process_only() as is_main:
                if is_main:
                    raise ExceptionGroup("two", [ValueError(threading.Lock()), KeyError(1)])
        except Exception:
            note(handled=True)
        """,
    "an exception of a class that other ranks do not know": """
        def found_lacking():
            class Lacking(ValueError):
                def __init__(self, what, *, hint):
                    super().__init__(f"lacking: {what}")
                    self.hint = hint
            return Lacking("rows", hint="add some")
        try:
            with ddp.main_process_only() as is_main:
                if is_main:
                    raise found_lacking()
        except ValueError as error:
            note(text=str(error), hint=error.hint)
        """,
    "an exception of a class that rank 0 alone defines": """
        import urllib.error
        if rank == 0:
            class Refused(urllib.error.URLError):
                pass
        try:
            with ddp.main_process_only() as is_main:
                if is_main:
                    raise Refused("no network")
        except OSError as error:
            note(handled=True)
        """,
    "exceptions of built-in classes that hold what cannot be sent": """
        import threading
        def no_file():
            error = FileNotFoundError(2, "no file", "rows")
            error.lock = threading.Lock()
            raise error
        for raises in (no_file, lambda: {}[threading.get_ident], lambda: {}[lambda: 1]):
            try:
                ddp.from_main_process(raises)
            except KeyError:
                note(key=True)
            except FileNotFoundError as error:
                note(text=str(error), values=[error.errno, error.filename])
        """,
    "exceptions whose class has its own __init__": """
        class Full(OSError):
            def __init__(self, code, *, folder):
                super().__init__(code, "is full", folder)
        class Over(SystemExit):
            def __init__(self, code, *, why):
                super().__init__(code)
        class Twice(ValueError):
            def __init__(self, what):
                super().__init__(f"bad: {what}")
        for raised in (lambda: Full(28, folder="here"), lambda: Over(5, why="time"), lambda: Twice("row")):
            try:
                with ddp.main_process_only() as is_main:
                    if is_main:
                        raise raised()
            except (Full, Over, Twice) as error:
                values = [getattr(error, name, None) for name in ("errno", "filename", "code")]
                note(**{type(error).__name__: [str(error), *values]})
        """,
    "except": """
        try:
            with ddp.main_process_only() as is_main:
                if is_main:
                    open("nowhere")
        except FileNotFoundError as error:
            note(caught=error.filename)
    """,
    "suppress": """
        from contextlib import suppress
        with suppress(FileNotFoundError):
            with ddp.main_process_only() as is_main:
                if is_main:
                    open("nowhere")
            note(went_on=True)
        note(after=ddp.from_main_process(lambda: 1))
    """,
    "retry": """
        calls = []
        def flaky():
            calls.append(1)
            if len(calls) < 3:
                raise OSError("busy")
            return len(calls)
        for turn in range(5):
            try:
                note(got=ddp.from_main_process(flaky), turn=turn)
                break
            except OSError:
                continue
    """,
    "exit": """
        import sys
        try:
            with ddp.main_process_only() as is_main:
                if is_main:
                    sys.exit("over")
        except SystemExit as end:
            note(end=end.code)
    """,
    "break": """
        for turn in range(5):
            with ddp.main_process_only() as is_main:
                if is_main:
                    pass
                break
        note(turn=turn)
    """,
    "continue": """
        passed = 0
        for turn in range(3):
            with ddp.main_process_only() as is_main:
                if is_main:
                    open("seen", "a").write("x")
                continue
            passed += 1
        note(turn=turn, passed=passed, seen=open("seen").read())
    """,
    "return": """
        def save():
            with ddp.main_process_only() as is_main:
                if is_main:
                    open("saved", "w").write("all")
                return "saved"
        note(returned=save(), there=open("saved").read())
    """,
    "nested": """
        with ddp.main_process_only() as outer:
            if outer:
                with ddp.main_process_only() as inner:
                    assert inner
                    value = ddp.from_main_process(lambda: 3)
                    assert ddp.from_all_ranks(value) == [3]
                with ddp.main_process_first(), ddp.in_turn():
                    ddp.write_file("deep", "there")
        note(deep=open("deep").read())
    """,
    "values of rank 0 in a block that it runs first": """
        import random
        seen = []
        with ddp.main_process_first():
            for turn in range(3):
                seen.append(ddp.from_main_process(lambda: f"{turn} of {rank}"))
            try:
                ddp.from_main_process(lambda: open(f"nowhere {rank}"))
            except FileNotFoundError as error:
                seen.append(error.filename)
            with ddp.main_process_first():
                seen.append(ddp.from_main_process(lambda: rank))
        note(seen=seen, after=ddp.from_main_process(lambda: 10 + rank))
        assert seen == ["0 of 0", "1 of 0", "2 of 0", "nowhere 0", 0]
    """,
    "what rank 0 does alone in a block that it runs first": """
        import random
        def append(name):
            open(name, "a").write("x")
        with ddp.main_process_first():
            with ddp.main_process_only() as is_main:
                if is_main:
                    append("log"), random.random()
            drawn = random.random()
            ddp.shell("echo -n x >> shell")
            lines = ddp.shell_output("echo -n x >> output; echo done")
            ddp.write_file("cell", "x", "a")
            try:
                with ddp.main_process_only() as is_main:
                    if is_main:
                        append("folder/none")
            except FileNotFoundError as error:
                failed = error.filename
            with ddp.in_turn():
                append("turn")
            with ddp.main_process_only() as is_main:
                if is_main:
                    ddp.from_main_process(lambda: append("deep"))
        written = [open(name).read() for name in ("log", "shell", "output", "cell", "turn", "deep")]
        note(written=written, drawn=drawn, next=random.random(), lines=[*lines], failed=failed)
        assert written == ["x"] * 6
    """,
    "what the others take over from rank 0 in their turn": """
        import dbm.dumb, shelve, sqlite3
        names = []
        with ddp.in_turn():
            ddp.shell("echo -n x >> shell")
            with ddp.main_process_only() as is_main:
                if is_main:
                    open("log", "a").write("x")
            names.append(ddp.from_main_process(lambda: f"run of {rank}"))
            read = open("log").read()
            for turn in range(2):
                with sqlite3.connect(ddp.own_file("rows.db")) as rows:
                    rows.execute("create table if not exists row (number)")
                    rows.execute("insert into row values (1)")
                    names.append(len([*rows.execute("select * from row")]))
                with shelve.Shelf(dbm.dumb.open(ddp.own_file("shelf"))) as shelf:
                    shelf["n"] = shelf.get("n", 0) + 1
                    names.append(shelf["n"])
        note(names=names, read=read, shell=open("shell").read(), log=open("log").read())
        assert open("shell").read() == open("log").read() == "x"
    """,
    "a cache that the others find, where rank 0 made it in a block that it runs first": """
        import os
        def made():
            if not os.path.exists("cache"):
                seed = ddp.from_main_process(lambda: 7 + rank)
                ddp.write_file("cache", str(seed))
                return seed
            with ddp.main_process_only() as is_main:  # rank 0 does not come here
                if is_main:
                    ddp.write_file("found", "")
            return int(ddp.from_main_process(lambda: open("cache").read()))
        with ddp.main_process_first():
            seed, name = made(), ddp.from_main_process(lambda: f"run of {rank}")
        note(seed=seed, name=name, found=os.path.exists("found"))
    """,
    "what a child does alone in a block that rank 0 runs first": """
        import os
        with ddp.main_process_first():
            child = os.fork()
            if not child:
                with ddp.main_process_only() as is_main:
                    if is_main:
                        open("log", "a").write("x")
                os._exit(0)
            os.waitpid(child, 0)
        note(log=open("log").read())
        assert open("log").read() == "x"
    """,
    "a database that all ranks change in a block that rank 0 runs first": """
        import sqlite3
        with ddp.main_process_first():
            with sqlite3.connect(ddp.own_file("rows.db")) as rows:
                rows.execute("create table row (number)")
                rows.execute("insert into row values (1)")
                read = [*rows.execute("select * from row")]
        ddp.from_all_ranks(None)
        note(read=read, left=[*sqlite3.connect("rows.db").execute("select * from row")])
    """,
    "a folder that is read before it is changed": """
        import os, time
        for number in range(4):
            ddp.write_file(f"checkpoint-{number}", "")
        if not ddp.is_main_process:
            time.sleep(0.5)  # rank 0 would have removed the first by then
        for old in sorted(name for name in os.listdir() if name.startswith("checkpoint"))[:-2]:
            with ddp.main_process_only() as is_main:
                if is_main:
                    os.remove(old)
        note(left=sorted(name for name in os.listdir() if name.startswith("checkpoint")))
    """,
    "a file that rank 0 writes first, where others still read the one before": """
        import time
        def write(text):
            with open("data", "w") as file:
                for letter in text:
                    file.write(letter), file.flush(), time.sleep(0.05)
        read = []
        for text in ("first", "later", "third"):
            with ddp.main_process_first():
                if ddp.is_main_process:
                    write(text)
                else:
                    time.sleep(0.1 * rank)  # rank 0 would be at the next one by then
                read.append(open("data").read())
        note(read=read)
    """,
    "files that are written in turn, where others still read those before": """
        import time
        if ddp.is_main_process:
            open("data", "w").write("first")
        ddp.from_all_ranks(None)
        if not ddp.is_main_process:
            time.sleep(0.3)
        read = open("data").read()
        with ddp.in_turn():
            open("data", "a").write(".")
        note(read=read, now=open("data").read())
    """,
    "a file that another program writes in a folder for a while, and that is moved": """
        import os, subprocess
        for turn in range(2):
            with ddp.in_turn():
                os.mkdir("unfinished")
                subprocess.run(["touch", "unfinished/part"])
                os.replace("unfinished/part", f"whole {turn}")
                os.rmdir("unfinished")
                open("log", "a").write("x")
        note(left=sorted(name for name in os.listdir() if name[0] in "wlu"), log=open("log").read())
        assert open("log").read() == "xx" and not os.path.exists("unfinished")
    """,
    "files that one process alone can create, and that stay open": """
        import os
        with ddp.in_turn():
            log = open("log", "x")
            lock = os.open("lock", os.O_CREAT | os.O_EXCL)
        log.write("x")
        log.close()
        ddp.from_all_ranks(None)
        note(read=open("log").read(), left=sorted(name for name in os.listdir() if name[0] == "l"))
        assert open("log").read() == "x"
    """,
    "a folder that rank 0 makes for all, and a file in it, in one turn": """
        import os
        def new_run():
            os.mkdir("run")
            return "run"
        with ddp.in_turn():
            log = open(f"{ddp.from_main_process(new_run)}/log", "x")
        log.write("x")
        log.close()
        ddp.from_all_ranks(None)
        note(read=open("run/log").read(), left=os.listdir("run"))
        assert open("run/log").read() == "x"
    """,
    "files that a turn links to another name": """
        import os
        open("last", "w").write("x") if ddp.is_main_process else None
        with ddp.in_turn():
            os.link("last", "best")
            os.symlink("last", "newest")
            with open("best", "a") as file:
                file.write("y")
        note(read=open("newest").read(), best=open("best").read(), left=sorted(os.listdir()).count("best"))
        assert os.path.islink("newest")
    """,
    "a folder that a turn makes and goes into": """
        import os
        with ddp.in_turn():
            os.mkdir("work")
            os.chdir("work")
            open("log", "a").write("x")
        note(here=os.path.basename(os.getcwd()), left=os.listdir(), log=open("log").read())
        assert open("log").read() == "x"
    """,
    "generators": """
        import random, torch
        with ddp.main_process_only() as is_main:
            if is_main:
                random.random(), torch.rand(3)
        note(drawn=[random.random(), torch.rand(1).item()])
    """,
}


@pytest.mark.parametrize("ranks", RANK_COUNTS)
@pytest.mark.parametrize("case", HANDLED)
def test_every_rank_goes_the_same_way(run: Run, case: str, ranks: int) -> None:
    ended = run(HANDLED[case], ranks)
    assert ended.codes == [0] * ranks, ended.text
    assert ended.notes[0], "each case notes something"
    for other in ended.notes[1:]:
        assert other == ended.notes[0]


def test_an_exception_that_rank_0_alone_handles_is_shown_by_the_others(run: Run) -> None:
    ended = run(
        """
        try:
            with ddp.main_process_only() as is_main:
                if is_main:
                    open("nowhere")
        except FileNotFoundError:
            if rank == 1:
                raise
        ddp.from_all_ranks(1)
        """
    )
    assert ended.codes == [1, 1], ended.text
    assert "FileNotFoundError" in ended.ranks[1].err
    assert "rank 1 raised FileNotFoundError" in ended.ranks[0].err


def test_an_exception_that_rank_0_handles_is_shown_where_it_has_left_the_script(run: Run) -> None:
    ended = run(
        """
        try:
            ddp.from_main_process(lambda: open("nowhere"))
        except FileNotFoundError:
            if rank == 1:
                raise
        """
    )
    assert ended.codes == [0, 1], ended.text
    assert "FileNotFoundError" in ended.ranks[1].err


# How rank 0's exception goes on, on every rank.
UNCAUGHT = {
    "as it is": "ddp.from_main_process(lambda: open('nowhere'))",
    "behind a cleanup that takes long": """
        try:
            ddp.from_main_process(lambda: open("nowhere"))
        finally:
            if rank == 0:
                import time; time.sleep(9)
        """,
    "as the cause of another": """
        try:
            ddp.from_main_process(lambda: open("nowhere"))
        except OSError as error:
            raise RuntimeError("no data") from error
        """,
    "as its own cause": """
        try:
            ddp.from_main_process(lambda: open("nowhere"))
        except OSError as error:
            raise error from error
        """,
    "in turn": """
        with ddp.in_turn():
            if rank == 0:
                open("nowhere")
        """,
}


@pytest.mark.parametrize("case", UNCAUGHT)
def test_an_uncaught_exception_ends_every_rank_and_rank_0_alone_shows_it(run: Run, case: str) -> None:
    ended = run(UNCAUGHT[case], 3, grace=20)
    assert ended.codes == [1, 1, 1], ended.text
    assert "FileNotFoundError" in ended.ranks[0].err
    for other in ended.ranks[1:]:
        assert "Error" not in other.err, ended.text
        assert other.seconds > ended.ranks[0].seconds + 1, "torchrun is to see rank 0 first"


def test_an_exception_of_a_forked_process_ends_that_alone(run: Run) -> None:
    ended = run(
        """
        import os
        child = 0 if rank else os.fork()
        if rank == 0 and child == 0:
            raise ValueError("the child's")
        code = os.waitpid(child, 0)[1] if rank == 0 else 0
        note(code=os.waitstatus_to_exitcode(code), all=ddp.from_all_ranks(rank))
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert [notes["all"] for notes in ended.notes] == [[0, 1]] * 2
    assert ended.notes[0]["code"] == 1
    assert "ValueError: the child's" in ended.text


# What rank 1 does while rank 0 waits for it, and what rank 0 then says.
PARTED = {
    "exit 0": ("import sys; sys.exit(0)", "rank 1 left the script"),
    "end of the script": ("raise SystemExit", "rank 1 left the script"),
    "exception": ("{}['gone']", "rank 1 raised KeyError at script.py, line 5 (cell 3)"),
    "another place": ("ddp.from_all_ranks(2)", "rank 1 is at script.py, line 5 (cell 3)"),
}


@pytest.mark.parametrize("way", ["from_all_ranks(1)", "init_process_group()"])
@pytest.mark.parametrize("case", PARTED)
def test_a_rank_that_goes_another_way_is_named_at_once(run: Run, case: str, way: str) -> None:
    does, says = PARTED[case]
    ended = run(f"# ---- cell 3\nif rank == 1:\n    {does}\n# ---- cell 4\nddp.{way}\n", limit=20)
    assert not ended.hung
    assert ended.ranks[0].code == 1, ended.text
    assert says in ended.ranks[0].err, ended.text
    assert "script.py, line 7 (cell 4)" in ended.ranks[0].err
    assert ("Traceback" in ended.ranks[0].err) == ("raised" not in says), (
        "only the first failing rank shows one"
    )
    assert ended.ranks[0].seconds < 12


def test_rank_0_that_has_ended_is_named_by_the_others(run: Run) -> None:
    ended = run("if rank == 0:\n    raise SystemExit\nddp.from_main_process(lambda: 1)\n", 3)
    assert ended.codes == [0, 1, 1], ended.text
    for rank in (1, 2):
        assert f"rank 0 left the script, while rank {rank} waits for it at script.py, line 5" in (
            ended.ranks[rank].err
        )


def test_a_rank_that_leaves_has_ended_before_another_says_so(run: Run) -> None:
    ended = run("import sys\nif rank == 0:\n    sys.exit('no data')\nddp.from_main_process(lambda: 1)\n")
    assert ended.codes == [1, 1], ended.text
    assert "no data" in ended.ranks[0].err
    assert ended.ranks[0].seconds + 1 < ended.ranks[1].seconds


def test_a_rank_that_vanished_is_named(run: Run) -> None:
    ended = run(
        "import os\nprint('kept')\nif rank == 1:\n    os._exit(0)\nddp.from_all_ranks(1)\n",
        limit=60,
        grace=20,
    )
    assert ended.ranks[0].code == 1, ended.text
    assert not ended.hung, ended.text
    assert "rank 1 (step 0) does not answer" in ended.ranks[0].err, ended.text
    assert ended.ranks[0].out == "kept\n"


def test_ranks_take_turns(run: Run) -> None:
    ended = run(
        "import time\nfor turn in range(2):\n    with ddp.in_turn():\n        begun = time.time()\n"
        "        time.sleep(0.05 * (3 - rank))\n        ended = time.time()\n    note(begun=begun, ended=ended)\n",
        3,
    )
    assert ended.codes == [0, 0, 0], ended.text
    for zero, one, two in zip(*(rank.history for rank in ended.ranks), strict=True):
        assert zero["ended"] <= one["begun"] <= one["ended"] <= two["begun"]


IN_TURN = """
import json, os, shutil, zipfile
from pathlib import Path
files = Path("files")
if rank == 0:
    (files / "old").mkdir(parents=True)
    for name in ("log", "a", "b", "old/c"):
        (files / name).write_text(name)
ddp.from_all_ranks(None)
kept = open("/dev/null", "a")
for turn in range(2):
    with ddp.in_turn():
        with (files / "log").open("a") as file:
            size = file.write(f" {turn} of rank {rank}"[:2]) + file.tell()
        read = json.loads((files / "list").read_text()) if (files / "list").exists() else []
        (files / "list").write_text(json.dumps([*read, turn]))
        with zipfile.ZipFile(files / "zip", "a") as archive:
            archive.writestr(f"{len(archive.namelist())}", "x")
            names = archive.namelist()
        moved = (files / "ab"[turn]).rename(files / f"moved{turn}")
        for path in (files / "old").iterdir():
            path.unlink()
        (files / f"new{turn}" / "deep").mkdir(parents=True)
        (files / f"new{turn}" / "deep" / "file").write_text("x")
        open(os.devnull, "a").close()
        if turn == 0:
            kept = open(files / "kept", "a")
    kept.write("line\\n")
    kept.flush()
    note(turn=turn, size=size, read=read, names=names, moved=moved.name)
ddp.from_all_ranks(None)  # rank 0 has written its last line
left = sorted(str(path) for path in files.rglob("*"))
texts = [(files / name).read_text() for name in ("log", "list", "moved0", "moved1", "kept")]
note(left=left, texts=texts, beside=sorted(name for name in os.listdir() if name.startswith(".")))
"""


@pytest.mark.parametrize("ranks", [0, 2, 3])
def test_each_rank_does_with_files_what_one_process_does(run: Run, ranks: int) -> None:
    """Values of a block that writes are read on every rank."""
    ended = run(IN_TURN, ranks)
    assert not any(ended.codes), ended.text
    for rank in ended.ranks:
        assert rank.history == ended.ranks[0].history
    first, second, last = ended.ranks[0].history
    assert (first["size"], second["size"], second["names"]) == (7, 9, ["0", "1"])
    assert (first["read"], second["read"], second["moved"]) == ([], [0], "moved1")
    assert last["texts"] == ["log 0 1", "[0, 1]", "a", "b", "line\nline\n"]
    names = "kept list log moved0 moved1 new0 new0/deep new0/deep/file new1 new1/deep new1/deep/file old zip"
    assert last["left"] == [f"files/{name}" for name in names.split()]
    assert last["beside"] == []


def test_an_exception_in_turn_ends_the_run(run: Run) -> None:
    ended = run(
        "with ddp.in_turn():\n    if rank == 0:\n        raise ValueError('full')\nnote(after=1)\n", 3
    )
    assert ended.codes == [1, 1, 1], ended.text
    assert "ValueError: full" in ended.ranks[0].err
    assert all("after" not in notes for notes in ended.notes)


def test_a_program_that_goes_on_after_a_turn_is_said(run: Run) -> None:
    ended = run(
        """
        import subprocess
        with ddp.in_turn():
            subprocess.run(["true"])
        with ddp.in_turn():
            program = subprocess.Popen(["sleep", "0.5"])
        program.wait()
        from torch.utils.data import DataLoader
        loader = DataLoader(range(4), num_workers=1, persistent_workers=True)
        with ddp.in_turn():
            batches = list(loader)
        """
    )
    assert ended.codes == [0, 0], ended.text
    (said,) = (line for line in ended.ranks[0].err.splitlines() if "WARNING" in line)
    assert "script.py, line 7: each rank has started a program in this block" in said


def test_machines_without_a_shared_disk_write_once_each(run: Run) -> None:
    ended = run(
        """
        with ddp.main_process_only() as is_main:
            if is_main:
                note(wrote=True)
        with ddp.main_process_first():
            note(ran=True, inside=ddp.from_main_process(lambda: rank))
            with ddp.main_process_only() as is_main:
                note(inner=is_main)
        note(all=ddp.from_all_ranks(rank), first=ddp.from_main_process(lambda: rank))
        """,
        4,
        machines=2,
        environment={"NB2DDP_SHARED_FS": "0"},
    )
    assert ended.codes == [0] * 4, ended.text
    assert [notes.get("wrote", False) for notes in ended.notes] == [True, False, True, False]
    assert [notes["inner"] for notes in ended.notes] == [True, False, True, False]
    assert [notes["inside"] for notes in ended.notes] == [0] * 4
    assert all(notes["ran"] and notes["all"] == [0, 1, 2, 3] and notes["first"] == 0 for notes in ended.notes)


@pytest.mark.parametrize("ranks", RANK_COUNTS)
def test_values_of_any_size_and_tensors_travel(run: Run, ranks: int) -> None:
    ended = run(
        """
        import torch
        large = ddp.from_main_process(lambda: torch.arange(3_000_000))  # 24 MB
        assert torch.equal(large, torch.arange(3_000_000))
        of_all = ddp.from_all_ranks({"rows": torch.full((2, 2), float(rank)), "text": "x" * 9_000_000 * (rank == 1)})
        note(rows=[one["rows"] for one in of_all], sizes=[len(one["text"]) for one in of_all])
        """,
        ranks,
    )
    assert ended.codes == [0] * ranks, ended.text
    for notes in ended.notes:
        assert notes["rows"] == [[[float(n)] * 2] * 2 for n in range(ranks)]
        assert notes["sizes"] == [9_000_000 * (n == 1) for n in range(ranks)]


def test_a_restart_meets_anew_in_the_same_store(server: RankServer, tmp_path: Path) -> None:
    script = """
    import os
    import ddp_support as ddp
    rank, _, _ = ddp.init()
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    note(value=ddp.from_main_process(lambda: f"attempt {attempt}"), all=ddp.from_all_ranks(attempt))
    ddp.init_process_group()
    if attempt == "0":
        raise ValueError("first")
    """
    first, second = server.attempts(tmp_path, script, 2, attempts=2)
    assert first.codes == [1, 1], first.text
    assert second.codes == [0, 0], second.text
    assert all(n == {"value": "attempt 1", "all": ["1", "1"]} for n in second.notes)


def test_workers_of_a_loader_pass_the_gates(run: Run) -> None:
    ended = run(
        """
        import torch
        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return 4
            def __getitem__(self, place):
                with ddp.main_process_only() as is_main:
                    value = ddp.from_main_process(lambda: place * 10)
                return value + int(is_main) * 0
        for epoch in range(2):
            note(rows=[b.tolist() for b in torch.utils.data.DataLoader(Rows(), batch_size=2, num_workers=2)])
        note(after=ddp.from_all_ranks(rank))
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert all(n == {"rows": [[0, 10], [20, 30]], "after": [0, 1]} for n in ended.notes)
