"""Which rows a rehearsal trains on: those of the local cache, of the hub, or made-up ones."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.rehearse.harness import compat, data, hub
from nb2ddp.rehearse.harness.notes import PLAN
from nb2ddp.rehearse.rehearsal import rehearse
from nb2ddp.rehearse.runs import Patience, Settings
from nb2ddp.rehearse.subject import Subject
from tests.e2e.test_rehearse_faults import DDP_LOOP, LOOP
from tests.support.hub_server import HubServer
from tests.support.limits import LONG


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    with HubServer().running() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.endpoint)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.setitem(PLAN, "hub", True)
        monkeypatch.setitem(PLAN, "datasets", str(tmp_path / "datasets"))
        for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(hub, "_FETCH", LONG)
        yield running


def numbered(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [{"x": [(n * k % 17) / 17 for k in range(1, 9)], "n": n} for n in range(start, start + count)]


def test_the_first_rows_of_each_split_come_from_the_hub_once(server: HubServer, tmp_path: Path) -> None:
    server.data_sets["some/rows"] = {"train.jsonl": numbered(300), "test.jsonl": numbered(20, start=1000)}
    for _ in range(2):
        rows = hub.first_rows({"path": "some/rows"}, 100)
        assert rows["train"]["n"] == list(range(100))
        assert rows["test"]["n"] == list(range(1000, 1020))
    assert server.asked_for("some/rows") == 1
    assert not [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert hub._names("train[:50%]+test") == ["test", "train"], "slices are those of the first rows"
    assert data._of_splits(rows, "train[:10%]")["n"] == list(range(10))
    assert data._of_splits(rows, "train[90%:]+test[:2]")["n"] == [*range(90, 100), 1000, 1001]
    assert data._of_splits(rows, "train[:5000]")["n"] == list(range(100))
    assert data._of_splits(rows, "train[5000:6000]")["n"] == list(range(100))
    assert [len(part) for part in data._of_splits(rows, ["train", "test"])] == [100, 20]


def test_a_hub_that_does_not_answer_is_asked_once(server: HubServer) -> None:
    server.is_silent = True
    for name in ("some/rows", "other/rows"):
        with pytest.raises(hub.Unavailable, match="the hub does not answer"):
            hub.first_rows({"path": name}, 100)
    assert server.asked == ["HEAD /"]


def test_what_the_hub_does_not_have_is_asked_for_once(server: HubServer) -> None:
    for _ in range(2):
        with pytest.raises(hub.Unavailable, match=r"the hub gives no rows of it .*DatasetNotFoundError"):
            hub.first_rows({"path": "no/rows"}, 100)
    assert server.asked_for("no/rows") <= 1


def test_who_works_offline_is_not_sent_to_the_hub(server: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLAN, "hub", False)
    with pytest.raises(hub.Unavailable, match="HF_HUB_OFFLINE"):
        hub.first_rows({"path": "some/rows"}, 100)
    assert server.asked == []


@pytest.mark.launch
@pytest.mark.thorough
def test_a_rehearsal_takes_its_rows_from_the_cache_and_from_the_hub(
    server: HubServer, tmp_path: Path
) -> None:
    server.data_sets["cached/rows"] = {"train.jsonl": numbered(600)}
    server.data_sets["some/rows"] = {"train.jsonl": numbered(700)}
    load = "import datasets; datasets.load_dataset('cached/rows')"
    subprocess.run([sys.executable, "-W", "ignore", "-c", load], check=True, capture_output=True)
    home = {path for path in (tmp_path / "home").rglob("*") if path.suffix != ".lock"}
    made = "x = torch.randn(64, 8)\n"
    reads = (
        "from datasets import load_dataset\n"
        'more = load_dataset("cached/rows", split="train").map(lambda row: {"n": row["n"] + 1})\n'
        'rows = load_dataset("some/rows", split="train")\n'
        'print(len(more), more[0]["n"], len(rows), rows[0]["n"])\n'
        'x = torch.tensor(rows["x"][:64])\n'
    )
    assert made in LOOP
    assert made in DDP_LOOP
    subject = Subject("data", DDP_LOOP.replace(made, reads), LOOP.replace(made, reads))
    keep = tmp_path / "keep"
    result = rehearse(subject, Settings(patience=Patience(LONG, LONG, LONG)), keep=keep)
    assert [fault.key for fault in result.faults] == ["printed-twice"]  # both ranks of this loop print
    replaced = {item["what"]: item["by"] for item in result.replaced}
    assert replaced == {
        "the 600 rows of cached/rows": "the first 512",
        "the data set some/rows": "its first 512 rows",
    }
    assert (keep / "several-notes" / "rank0.out").read_text() == "512 1 512 0\n"
    assert server.asked_for("some/rows") == 1
    assert {path for path in (tmp_path / "home").rglob("*") if path.suffix != ".lock"} == home


def batched(rows: dict[str, list[str]]) -> list[str]:
    return [f"{ask} {answer}" for ask, answer in zip(rows["ask"], rows["answer"], strict=True)]


def test_a_formatting_function_for_batches_gives_one_text_for_one_row() -> None:
    rows = [{"ask": "why", "answer": "so"}]
    assert compat._of_one_row(batched, rows)(rows[0]) == "why so"


def test_a_formatting_function_for_rows_stays() -> None:
    def single(row: dict[str, str]) -> str:
        return row["ask"].upper()

    assert compat._of_one_row(single, [{"ask": "why"}]) is single
