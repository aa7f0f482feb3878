"""nb2ddp installed from its wheel, as users have it: its commands from a folder that is no checkout."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Literal

import nbformat
import pytest

import nb2ddp
from nb2ddp.cli import main
from nb2ddp.errors import install_command
from nb2ddp.options import Options
from nb2ddp.page.page import page
from tests.e2e.test_magic import COLLECT, DATA, LOOP, MODEL, SAVE
from tests.support import ROOT, SAMPLES
from tests.support.helpers import notebook
from tests.support.installed import Installed, built, install, install_resolved
from tests.support.kernels import kernel_in

ALPACA = SAMPLES / "alpaca_sft.ipynb"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in one site-packages with a training stack, the Kaggle client and Jupyter."""
    return install(wheel, tmp_path_factory.mktemp("installed"), everything=True)


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel without any extra: nothing but what it depends on."""
    return install(wheel, tmp_path_factory.mktemp("bare"), everything=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of a user, with a notebook that trains with torch alone."""
    nbformat.write(notebook(DATA, MODEL, LOOP, SAVE), tmp_path / "tiny.ipynb")
    return tmp_path


@pytest.fixture(params=[pytest.param("installed", marks=pytest.mark.thorough), "bare"])
def either(request: pytest.FixtureRequest) -> Installed:
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Installed)
    return found


WHERE = """\
import importlib.metadata, json, pathlib, sys
import nb2ddp, nb2ddp.conversion.pipeline, nb2ddp.rendering
ours = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "nb2ddp"]
print(json.dumps({
    "files": [*ours, str(nb2ddp.rendering.templates_dir())],
    "paths": [path for path in sys.path if (pathlib.Path(path) / "nb2ddp").exists()],
    "metadata": str(importlib.metadata.distribution("nb2ddp").locate_file("")),
    "url": importlib.metadata.distribution("nb2ddp").read_text("direct_url.json"),
}))
"""


@pytest.mark.parametrize("name", ["installed", "bare"])
def test_all_of_it_comes_from_the_wheel(name: str, request: pytest.FixtureRequest, folder: Path) -> None:
    """Else every other test here would show nothing."""
    found = request.getfixturevalue(name)
    (folder / "where.py").write_text(WHERE)
    done = found.run("python", "where.py", cwd=folder)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    package = found.site / "nb2ddp"
    assert seen["files"]
    assert all(Path(file).is_relative_to(package) for file in seen["files"])
    assert not any(path.is_symlink() for path in (package, *package.rglob("*")))
    assert seen["paths"] == [str(found.site)]
    assert Path(seen["metadata"]) == found.site
    assert json.loads(seen["url"])["url"].endswith(".whl")
    assert not any(Path(path).is_relative_to(ROOT / "nb2ddp") for path in seen["files"])


@pytest.mark.parametrize("command", ["", *sorted(main.commands)])
def test_every_command_has_its_help(either: Installed, folder: Path, command: str) -> None:
    done = either.nb2ddp(*filter(None, [command]), "--help", cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Usage: nb2ddp {command}".rstrip())


def test_a_notebook_is_converted(either: Installed, folder: Path) -> None:
    done = either.nb2ddp("convert", ALPACA, "-o", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    files = {str(path.relative_to(folder / "out")) for path in (folder / "out").rglob("*") if path.is_file()}
    expected = nb2ddp.convert(ALPACA).files
    assert files == {*expected, "report.json"}
    assert {name: (folder / "out" / name).read_text() for name in expected} == expected


def test_the_rules_are_listed_and_shown(either: Installed, folder: Path) -> None:
    listed = either.nb2ddp("rules", cwd=folder)
    assert listed.returncode == 0, listed.stderr
    first = listed.stdout.split()[0]
    assert either.nb2ddp("rules", first, cwd=folder).returncode == 0


@pytest.mark.parametrize("target", ["torchrun", "slurm", "accelerate", "kubeflow", "skypilot"])
def test_the_files_of_a_cluster_are_written(either: Installed, folder: Path, target: str) -> None:
    done = either.nb2ddp("emit", "--target", target, "tiny.ipynb", "-o", "out", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert any("mse_loss" in path.read_text() for path in (folder / "out").iterdir())


def test_nbconvert_knows_the_exporter(installed: Installed, folder: Path) -> None:
    done = installed.run("python", "-m", "nbconvert", "--to", "ddp", "tiny.ipynb", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "ddp_support.py").is_file()  # what the script imports
    (script,) = (path for path in folder.glob("*.py") if path.name != "ddp_support.py")
    compile(script.read_text(), script.name, "exec")
    assert "mse_loss" in script.read_text()


def test_nbconvert_is_not_needed(bare: Installed) -> None:
    for name in ("nbconvert", "bleach", "tornado", "zmq"):
        assert not (bare.site / name).exists(), name


def test_a_push_is_shown(installed: Installed, folder: Path) -> None:
    done = installed.nb2ddp("push", "--dry-run", "--owner", "me", "tiny.ipynb", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("POST https://")
    assert "nothing was sent" in done.stderr


@pytest.mark.parametrize("arguments", [[], ["--dry-run", "--owner", "me"]])
def test_without_the_extra_a_push_says_which(bare: Installed, folder: Path, arguments: list[str]) -> None:
    done = bare.nb2ddp("push", *arguments, "tiny.ipynb", cwd=folder)
    assert done.returncode not in (0, 2)
    assert install_command("kaggle") in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("is_named", [False, True])
def test_without_torch_a_rehearsal_says_what_to_do(bare: Installed, folder: Path, is_named: bool) -> None:
    named = ["--python", os.path.relpath(bare.python, folder)] if is_named else []
    done = bare.nb2ddp("rehearse", "tiny.ipynb", *named, cwd=folder)
    assert done.returncode == 3
    assert "No module named 'torch'" in done.stderr
    assert "name a Python that has it with --python" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["--cpu"], ["--cpu", "--nproc", "2"], []])
def test_without_torch_a_run_says_what_to_do(bare: Installed, folder: Path, arguments: list[str]) -> None:
    done = bare.nb2ddp("run", "tiny.ipynb", *arguments, cwd=folder)
    assert done.returncode == 1
    assert "PyTorch is not installed for" in done.stderr.splitlines()[-1]
    assert "pip install torch" in done.stderr
    assert "No module named" not in done.stderr


@pytest.mark.launch
@pytest.mark.parametrize(
    ("resolution", "python"),
    [
        pytest.param("lowest-direct", sys.executable, id="lowest"),
        *(
            pytest.param(resolution, version, id=f"{resolution}-{version}", marks=pytest.mark.thorough)
            for version in ("3.11", "3.12", "3.13", "3.14")
            for resolution in ("lowest-direct", "highest")
        ),
    ],
)
def test_any_version_of_what_it_needs_converts_alike(
    wheel: Path, folder: Path, resolution: Literal["lowest-direct", "highest"], python: str
) -> None:
    try:
        found = install_resolved(wheel, folder / "venv", resolution, python)
    except LookupError as error:
        pytest.skip(str(error))
    versions = found.run("python", "-c", VERSIONS, cwd=folder).stdout.split()
    assert ("8.1.0" in versions) == (resolution == "lowest-direct"), "click"
    done = found.nb2ddp("convert", ALPACA, "-o", "out", "--html", "page.html", cwd=folder)
    assert done.returncode == 0, done.stderr
    conversion = nb2ddp.convert(ALPACA)
    assert {name: (folder / "out" / name).read_text() for name in conversion.files} == conversion.files
    assert (folder / "page.html").read_text() == page(conversion, Options())
    done = found.run("ipython", "--no-banner", "-c", "%load_ext nb2ddp\n%run_ddp --nope", cwd=folder)
    assert "unrecognized arguments: --nope" in done.stdout + done.stderr
    if python == sys.executable:  # what follows takes the most time
        return
    for command, said in (
        (["--help"], "Usage: nb2ddp"),
        (["doctor"], "pip install torch` installs it"),
        (["push", "--dry-run", "--owner", "me", "tiny.ipynb"], install_command("kaggle")),
        (["web"], install_command("web")),
        (["emit", "--target", "torchrun", "tiny.ipynb", "-o", "emitted"], "emitted"),
    ):
        done = found.nb2ddp(*command, cwd=folder)
        assert said in done.stdout + done.stderr, command
        assert "Traceback" not in done.stderr, command


VERSIONS = "from importlib.metadata import version; print(version('click'), version('nbformat'))"


def test_two_processes_train(installed: Installed, folder: Path) -> None:
    done = installed.nb2ddp("run", "tiny.ipynb", "--cpu", "--nproc", 2, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("step 11: loss") == 1
    assert (folder / "model.pt").is_file()


@pytest.mark.launch
@pytest.mark.thorough  # as in test_rehearse.py, and the wheel holds all files: test_packaging.py
def test_a_notebook_is_rehearsed(installed: Installed, folder: Path) -> None:
    before = {path.name for path in folder.iterdir()}
    done = installed.nb2ddp("rehearse", "tiny.ipynb", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["passed"]
    states = {point["title"]: point["state"] for point in report["points"]}
    assert {states[title] for title in ("replicas", "losses", "samples", "files", "ends")} == {"passed"}
    assert {path.name for path in folder.iterdir()} == before


@pytest.mark.launch
@pytest.mark.thorough
def test_the_magic_trains(installed: Installed, folder: Path) -> None:
    with kernel_in(folder, python=installed.python) as kernel:
        assert kernel.value("__import__('nb2ddp').__file__").startswith(str(installed.site))
        assert kernel.run("%run_ddp --help").text.startswith("Usage:")
        for name, source in (("data", DATA), ("model", MODEL)):
            assert kernel.run(COLLECT + source, name).ok
        ran = kernel.run(f"%%run_ddp --cpu --nproc 2\n{LOOP}{SAVE}", "train")
        assert ran.ok, ran.text + ran.error
        assert "Trained in" in ran.result["text/plain"]


@pytest.mark.launch
@pytest.mark.thorough
def test_the_machine_is_examined(installed: Installed, folder: Path) -> None:
    done = installed.nb2ddp("doctor", "--cpu", cwd=folder)
    assert "the sums are right" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0, done.stdout
    assert "Nothing fails" in done.stdout
