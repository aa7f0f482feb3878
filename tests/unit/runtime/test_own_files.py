"""A SQLite file of a loop: rank 0 works on the notebook's, the others on copies, and all read the same."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.ranks import Ended
from tests.unit.runtime.conftest import RANK_COUNTS

Run = Callable[..., Ended]

SCRIPT = """
import contextlib, os, sqlite3, tempfile
ddp.init_process_group()
with ddp.main_process_only() as is_main:
    if is_main:
        with contextlib.closing(sqlite3.connect(ddp.own_file("old.db"))) as old, old:
            old.execute("create table a (n int)")
            old.execute("insert into a values (7)")
seen = []
def rows(path, *statements):
    with contextlib.closing(sqlite3.connect(ddp.own_file(path))) as base, base:
        for statement in statements:
            base.execute(statement)
        seen.append(base.execute("select count(*), sum(n) from a").fetchone())
rows("old.db", "insert into a values (1)")
rows(b"old.db", "insert into a values (1)")
rows("log.db", "create table a (n int)", "insert into a values (3)")
rows("log.db", "insert into a values (4)")
rows("log.db", "insert into a values (5)")
with ddp.main_process_only() as is_main:
    if is_main:
        os.remove("log.db")
rows("log.db", "create table a (n int)")
rows(":memory:", "create table a (n int)", "insert into a values (9)")
with tempfile.TemporaryDirectory() as folder:
    rows(f"{folder}/own.db", "create table a (n int)")
    seen.append(os.listdir(folder))
with contextlib.suppress(sqlite3.OperationalError):
    rows("none/log.db")
    seen.append("opened")
if not os.fork():
    os._exit(rows("old.db") or 0)
note(seen=seen)
"""


@pytest.mark.parametrize("ranks", [0, *RANK_COUNTS])
def test_all_ranks_read_what_one_process_reads(run: Run, tmp_path: Path, ranks: int) -> None:
    ended = run(SCRIPT, ranks)
    assert not any(ended.codes), ended.text
    seen = [[2, 8], [3, 9], [1, 3], [2, 7], [3, 12], [0, None], [1, 9], [0, None], ["own.db"]]
    assert [notes["seen"] for notes in ended.notes] == [seen] * max(ranks, 1)
    (file,) = tmp_path.rglob("old.db")
    assert sqlite3.connect(file).execute("select sum(n) from a").fetchone() == (9,)


SHELF = """
import dbm.dumb, os, shelve, tempfile
ddp.init_process_group()
seen = []
def count(make):
    with make() as shelf:
        shelf["n"] = shelf.get("n", 0) + 1
        seen.append(shelf["n"])
for _ in range(3):
    count(lambda: shelve.open(ddp.own_file("shelf")))
    count(lambda: shelve.Shelf(dbm.dumb.open(ddp.own_file("dumb"))))
for _ in range(2):
    with ddp.main_process_only() as is_main:
        if is_main:
            with open("state", "w") as file:
                file.write(str(seen[-1] * 10))
    with open(ddp.own_file("state", anew=True), "r+") as file:
        seen.append(int(file.read()) + 1)
        file.seek(0)
        file.write(str(seen[-1]))
    ddp.from_main_process(lambda: None)
made = tempfile.mkstemp(dir=ddp.own_file(os.curdir))[1]
note(is_here=os.path.realpath(os.path.dirname(made)) == os.path.realpath("."))
os.remove(made)
with open("state") as file:
    note(last=file.read())
note(seen=seen, names=sorted({name.partition(".")[0] for name in os.listdir()}))
"""


@pytest.mark.parametrize("ranks", [0, *RANK_COUNTS])
def test_a_shelf_holds_what_one_process_puts_there(run: Run, ranks: int) -> None:
    ended = run(SHELF, ranks)
    assert not any(ended.codes), ended.text
    for rank, notes in enumerate(ended.notes):
        assert notes["is_here"] == (rank == 0)
        assert notes["seen"] == [1, 1, 2, 2, 3, 3, 31, 311]
        assert notes["last"] == "311"
        assert {"shelf", "dumb"} <= {*notes["names"]}
