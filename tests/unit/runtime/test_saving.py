"""Saved models and weights: loaded without our module, and whole or not there."""

from __future__ import annotations

import subprocess
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks import Ended, RankServer
from tests.support.runtime_module import load_module
from tests.unit.runtime.conftest import START

Run = Callable[..., Ended]


@pytest.fixture
def run(server: RankServer, tmp_path: Path) -> Callable[..., Ended]:
    """Run a script."""

    def run_script(script: str, ranks: int = 2, **options: Any) -> Ended:
        return server.run(tmp_path / f"run-{ranks}", START + textwrap.dedent(script), ranks, **options)

    return run_script


SAVED = """
import torch, copy, pickle
model = ddp.parallelize(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
model(torch.ones(4, 2)).sum().backward()
with ddp.main_process_only() as is_main:
    if is_main:
        torch.save(model, "model.pt")
copied = copy.deepcopy(model)
copied(torch.ones(4, 2)).sum().backward()
note(kind=type(copied).__name__, is_one=isinstance(model, torch.nn.Sequential), weight=model[0].weight)
"""


def test_a_saved_model_needs_nothing_of_ours(server: RankServer, tmp_path: Path) -> None:
    ended = server.run(tmp_path, "import ddp_support as ddp\nrank, _, _ = ddp.init(seed=0)\n" + SAVED)
    assert ended.codes == [0, 0], ended.text
    load = (
        "import sys, torch\nmodel = torch.load('model.pt', weights_only=False)\n"
        "note(kind=str(type(model)), ours='ddp_support' in sys.modules, weight=model[0].weight)\n"
    )
    loaded = server.run(tmp_path, load, 0)
    assert loaded.codes == [0], loaded.text
    assert loaded.notes[0]["kind"] == "<class 'torch.nn.modules.container.Sequential'>"
    assert not loaded.notes[0]["ours"]
    assert loaded.notes[0]["weight"] == ended.notes[0]["weight"]


def test_a_file_of_weights_is_whole_or_not_there(run: Run) -> None:
    ended = run(
        """
        import os
        import torch
        from safetensors.torch import load_file, save_file
        class Breaks:
            def __reduce__(self):
                raise RuntimeError("the disk is full")
        torch.save({"a": torch.ones(3)}, "kept.pt")
        try:
            torch.save({"a": torch.zeros(100_000), "b": Breaks()}, f="kept.pt")
        except RuntimeError as error:
            note(error=str(error))
        save_file({"a": torch.ones(2)}, f"weights-{rank}.safetensors", metadata={"format": "pt"})
        note(kept=torch.load("kept.pt")["a"], weights=load_file(f"weights-{rank}.safetensors")["a"])
        with ddp.main_process_only() as is_main:
            if is_main:
                note(left=sorted(name for name in os.listdir() if "unfinished" in name))
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes[0]["error"] == "the disk is full"
    assert ended.notes[0]["kept"] == [1, 1, 1]
    assert ended.notes[0]["weights"] == [1, 1]


def test_what_a_killed_run_was_saving_is_removed_and_not_what_a_living_one_saves(
    run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "run-2"
    folder.mkdir()
    (folder / ".unfinished-chapters").mkdir()  # somebody's own
    with load_module()._unfinished_folder(str(folder)) as living:
        killed = run(
            """
            import glob
            import os
            import signal
            import time
            import torch
            class Kills:
                def __reduce__(self):
                    # Both have begun: whoever begins later removes what a killed one has left.
                    while len(glob.glob(".unfinished-nb2ddp-*")) < 3:
                        time.sleep(0.01)
                    os.kill(os.getpid(), signal.SIGKILL)
            torch.save(Kills(), f"rank{rank}.pt")
            """
        )
        assert killed.codes == [-9, -9], killed.text
        assert len(_unfinished(folder) - {".unfinished-chapters", Path(living).name}) == 2
        ended = run('import torch\ntorch.save(torch.ones(3), f"rank{rank}.pt")\n')
        assert ended.codes == [0, 0], ended.text
        assert _unfinished(folder) == {".unfinished-chapters", Path(living).name}
    assert _unfinished(folder) == {".unfinished-chapters"}
    assert (folder / "rank1.pt").is_file()


def _unfinished(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.name.startswith(".unfinished")}


def test_ranks_that_cache_the_same_array_read_it_whole(run: Run) -> None:
    ended = run(
        """
        import os, time
        import numpy as np
        class Slow(np.ndarray):
            def tofile(self, *args):  # numpy.save() writes the header, then this
                time.sleep(0.3)
                super().tofile(*args)
        for turn in range(3):
            path = f"row{turn}"
            ddp.from_all_ranks(None)
            if not os.path.isfile(f"{path}.npy"):
                np.save(path, np.full(9, turn).view(Slow))
            note(**{path: np.load(f"{path}.npy")})
        ddp.from_all_ranks(None)
        note(left=sorted(name for name in os.listdir() if "unfinished" in name))
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes == [{**{f"row{turn}": [turn] * 9 for turn in range(3)}, "left": []}] * 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True)
    if mounted.returncode:
        pytest.skip("a file system can be mounted by root alone")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_is_named_and_no_half_checkpoint_stays(
    server: RankServer, tmp_path: Path, small_disk: Path
) -> None:
    program = f"""
        import json, os, types
        import torch
        os.chdir({str(small_disk)!r})
        class Trainer:
            args = types.SimpleNamespace(output_dir="out")
            def save_model(self, folder=None):
                save = torch.save.__wrapped__  # a Trainer's script leaves it alone
                save(torch.ones(self.size), f"{{folder}}/model.pt")
            def _save_checkpoint(self, step):
                folder = f"out/checkpoint-{{step}}"
                os.makedirs(folder)
                open(f"{{folder}}/config.json", "w").close()
                self.save_model(folder)
                with open(f"{{folder}}/trainer_state.json", "w") as file:
                    json.dump({{}}, file)
        if rank == 0:
            trainer = Trainer()
            ddp._make_also(trainer, ddp._SavesForAll)
            trainer.size = 1000
            trainer._save_checkpoint(1)
            trainer.size = 1_000_000
            try:
                trainer._save_checkpoint(2)
            except OSError as error:
                note(said=str(error), files=sorted(os.listdir("out")))
        """
    ended = server.run(tmp_path / "run", START + textwrap.dedent(program), 2)
    assert ended.codes == [0, 0], ended.text
    assert ended.notes[0]["said"] == "[Errno 28] No space left on device: 'out'"
    assert ended.notes[0]["files"] == ["checkpoint-1"]
