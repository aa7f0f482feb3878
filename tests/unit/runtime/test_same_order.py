"""The order of a set of texts, which each process has its own unless Python starts with one hash for all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nb2ddp.runtime import support_module

SCRIPT = """
import os
os.environ.setdefault("PYTHONHASHSEED", "5")  # as notebooks do, too late for what it says
import ddp_support as ddp
rank, local_rank, world_size = ddp.init()
def numbered(words):
    return {word: number for number, word in enumerate(set(words))}
with open(f"order-{rank}", "w") as file:
    file.write(" ".join(numbered("abcdefghijklmnop")))
"""


@pytest.mark.parametrize(
    ("given", "start"),
    [
        (None, "script.py"),
        pytest.param(None, "-m script", marks=pytest.mark.thorough),
        pytest.param("7", "script.py", marks=pytest.mark.thorough),
    ],
)
def test_sets_of_texts_have_one_order_on_all_ranks(tmp_path: Path, given: str | None, start: str) -> None:
    (tmp_path / "ddp_support.py").write_text(support_module(frozenset({"init"})))
    (tmp_path / "script.py").write_text(SCRIPT)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONHASHSEED"}
    environment |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment |= {} if given is None else {"PYTHONHASHSEED": given}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
        *start.split(),
    ]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=100)
    orders = [(tmp_path / f"order-{rank}").read_text() for rank in range(2)]
    code = "print(*set('abcdefghijklmnop'))"
    environment["PYTHONHASHSEED"] = given or "5"
    alone = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert orders == [alone.stdout.strip()] * 2
