"""Notebooks that train with Lightning: one process and three ranks print, log and save the same.

Each program in lightning/ is what people write in a notebook, cell by cell. It runs as it is in one process, and its
script on several ranks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nb2ddp import convert
from nb2ddp.ddp_folder import SUPPORT
from tests.support.kaggle_kernel import Kaggle
from tests.support.kernels import kernel_in
from tests.support.ranks import Ended, RankServer, collect

pytestmark = pytest.mark.launch

NOTEBOOKS = sorted((Path(__file__).parent / "lightning").glob("*.py"))
ON_TWO = ("accumulation", "gan")  # three show what two do
# What only `make test-all` runs.
LATER = """
autoencoder classifier contrastive datamodule early_stopping gan metrics schedulers segmentation text_finetuning
timeseries
""".split()
TOLERANCE = 1e-5
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+e[-+]?\d+")
# What two runs need not share: the clock, and rounding that Adam enlarges where there is no gradient.
_OWN = re.compile(r"time_elapsed|key\.bias|optimizer_states")
# What the ranks divide, or why every rank computes it whole.
WHOLE = {"segmentation": "a batch norm takes its statistics from whole batches"}


@pytest.fixture(scope="module")
def server() -> Iterator[RankServer]:
    pytest.importorskip("lightning")
    server = RankServer(("accelerate", "numpy", "lightning.pytorch", "pytorch_lightning"))
    yield server
    server.close()


def both(server: RankServer, notebook: Path, folder: Path, ranks: int) -> tuple[Ended, Ended]:
    """The notebook in one process, and its script on some ranks, at the same time."""
    conversion = convert(notebook)
    assert conversion.status == "converted", conversion.declined
    one, several = folder / "one", folder / "several"
    several.mkdir(parents=True)
    (several / SUPPORT).write_text(conversion.files[SUPPORT])
    jobs = (
        server.start(one, notebook.read_text(encoding="utf-8"), 0, limit=200),
        server.start(several, conversion.files["train_ddp.py"], ranks, limit=200),
    )
    return collect(one, jobs[0])[0], collect(several, jobs[1])[0]


def made(folder: Path) -> dict[str, Path]:
    """The files that a run has made in a folder, by name."""
    own = re.compile(
        r"(?:out|err|notes)-\d|script\.py|ddp_support|__pycache__|train_ddp|logs/rank|run_ddp/|run\.json"
    )
    found = (path for path in folder.rglob("*") if path.is_file())
    names = {path.relative_to(folder).as_posix(): path for path in found}
    return {name: path for name, path in names.items() if own.match(name) is None}


def assert_same_files(one: Path, other: Path) -> None:
    """Compare what two runs have written."""
    expected, found = made(one), made(other)
    assert expected.keys() == found.keys()
    for name, path in expected.items():
        assert_same(content(path), content(found[name]), (one, other))


def content(path: Path) -> Any:
    """What a file holds: tensors of a checkpoint, numbers and words of a text."""
    import torch

    if path.suffix in (".ckpt", ".pt"):
        return torch.load(path, weights_only=False)
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    text = path.read_text(encoding="utf-8")
    return json.loads(text) if path.suffix == ".json" else words(text)


def words(text: str) -> list[Any]:
    """The numbers of a text, and what stands between them."""
    return [*map(float, _NUMBER.findall(text)), *_NUMBER.split(re.sub(r" {2,}|─{2,}|-{4,}", " ", text))]


def flat(value: Any, folder: Path, place: str = "") -> Iterator[tuple[str, Any]]:
    """The single values in one, by where they are; a run's own folder is left out of names."""
    if isinstance(value, dict | list | tuple):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in items:
            yield from flat(item, folder, f"{place}.{name}".replace(str(folder), ""))
    elif _OWN.search(place) is None:
        yield place, value.replace(str(folder), "") if isinstance(value, str) else value


def assert_same(one: Any, other: Any, folders: tuple[Path, Path]) -> None:
    """Compare values: numbers to within the tolerance, relative to the largest of a tensor."""
    import torch

    expected, found = (dict(flat(value, folder)) for value, folder in zip((one, other), folders, strict=True))
    assert expected.keys() == found.keys()
    for place, value in expected.items():
        if isinstance(value, torch.Tensor | float):
            a, b = (torch.as_tensor(x).double() for x in (value, found[place]))
            size = max(float(a.abs().max()), 0.1) if a.numel() else 1.0
            assert torch.allclose(a, b, rtol=0, atol=TOLERANCE * size, equal_nan=True), (place, a, b)
        elif not callable(value):
            assert value == found[place], place


def printed(ended: Ended) -> list[Any]:
    return words(
        "\n".join(line for line in ended.ranks[0].out.splitlines() if not line.startswith("nb2ddp:"))
    )


@pytest.mark.parametrize(
    ("notebook", "ranks"),
    [
        pytest.param(
            path,
            2 if path.stem in ON_TWO else 3,
            id=path.stem,
            marks=pytest.mark.thorough if path.stem in LATER else (),
        )
        for path in NOTEBOOKS
    ],
)
def test_several_ranks_do_what_one_process_does(
    server: RankServer, tmp_path: Path, notebook: Path, ranks: int
) -> None:
    one, several = both(server, notebook, tmp_path, ranks)
    assert one.codes == [0], one.text
    assert not any(several.codes), several.text
    assert_same_files(one.folder, several.folder)
    assert_same(printed(one), printed(several), (one.folder, several.folder))
    said = several.ranks[0].out + several.ranks[0].err
    assert f"{ranks} replicas equal, bit for bit" in said
    assert WHOLE.get(notebook.stem, "") in said
    assert ("whole batches, which saves no time" in said) == (notebook.stem in WHOLE), said
    assert "a check failed" not in said
    assert not any(rank.out for rank in several.ranks[1:]), several.text


@pytest.mark.thorough
def test_a_cell_of_a_running_notebook(server: RankServer, tmp_path: Path) -> None:
    """%%run_ddp trains in a real kernel, and the cells below read what rank 0 has saved."""
    text = (NOTEBOOKS[0].parent / "early_stopping.py").read_text(encoding="utf-8")
    *before, fits = re.split(r"^# %%\n", text, flags=re.MULTILINE)[:4]
    job = server.start(tmp_path / "one", "".join([*before, fits]), 0, limit=200)
    folder = tmp_path / "kernel"
    folder.mkdir()
    with kernel_in(folder) as kernel:
        for number, cell in enumerate(before):
            assert kernel.run(cell, f"cell {number}").ok
        trained = kernel.run(f"%%run_ddp --cpu --nproc 2\n{fits}", "fits")
        assert trained.ok, trained.text + trained.error
        assert "2 replicas equal, bit for bit" in trained.text
        assert "nothing is saved" not in trained.text
        loads = "Regression.load_from_checkpoint('checkpoints/last.ckpt').hparams.width"
        assert kernel.value(loads) == "24"
        assert kernel.others() == []
    (one,) = collect(tmp_path / "one", job)
    assert one.codes == [0], one.text
    assert_same_files(one.folder, folder)


@pytest.mark.thorough
def test_a_kaggle_bundle(server: RankServer, tmp_path: Path) -> None:
    notebook = NOTEBOOKS[0].parent / "classifier.py"
    job = server.start(tmp_path / "one", notebook.read_text(encoding="utf-8"), 0, limit=200)
    kaggle = Kaggle(tmp_path)
    files = convert(notebook).files
    (text,) = (text for name, text in files.items() if re.fullmatch(r"kaggle/.*\.py", name))
    code, output = kaggle.run(text, NB2DDP_CPU="1")
    assert code == 0, output
    assert "2 replicas equal, bit for bit" in output
    assert kaggle.report()["world_size"] == 2
    (one,) = collect(tmp_path / "one", job)
    assert one.codes == [0], one.text
    assert_same_files(one.folder, kaggle.work)
