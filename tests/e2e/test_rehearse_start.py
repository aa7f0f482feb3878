"""How the harness gets into a rehearsed process: whatever Python it is, and wherever nb2ddp is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import nb2ddp

PACKAGE = Path(nb2ddp.__file__).parent
TELLS = "import json, sys\nprint(json.dumps([sys.path, sorted(n for n in sys.modules if 'nb2ddp' in n)]))\n"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has neither nb2ddp nor anything else."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, symlinks=True)
    return folder / "bin" / "python"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder in which nb2ddp is installed beside a library that a script uses."""
    folder = tmp_path / "site"
    shutil.copytree(PACKAGE, folder / "nb2ddp", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "library.py").write_text("value = 7\n")
    return folder


def started(
    python: Path, site: Path, code: str, *, paths: tuple[Path, ...] = (), plan: bool = True
) -> tuple[int, str, str]:
    """Run a script as a rehearsal does, with these folders on PYTHONPATH; exit code, stdout and stderr."""
    notes = site.parent / "notes"
    notes.mkdir()
    script = site.parent / "work" / "script.py"
    script.parent.mkdir(exist_ok=True)
    script.write_text(code)
    if plan:
        (notes / "plan.json").write_text(json.dumps({"script": str(script)}))
    warden = site / "nb2ddp" / "rehearse" / "harness" / "warden.py"
    command = [str(python), "-I", "-S", str(warden), str(notes), str(python), str(script)]
    path = os.pathsep.join(map(str, paths))
    done = subprocess.run(
        command,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path} if paths else {"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert not done.stderr, done.stderr
    return done.returncode, (notes / "rank0.out").read_text(), (notes / "rank0.err").read_text()


def test_libraries_beside_an_installed_nb2ddp_stay(python: Path, site: Path) -> None:
    code, out, err = started(python, site, "import library\nprint(library.value)\n", paths=(site,))
    assert (code, out) == (0, "7\n"), err


def test_the_script_finds_what_it_finds_without_the_harness(python: Path, site: Path) -> None:
    other = site.parent / "other"
    other.mkdir()
    code, out, err = started(python, site, TELLS, paths=(other,))
    assert code == 0, err
    path, modules = json.loads(out)
    script = site.parent / "work" / "script.py"
    plain = subprocess.run(
        [python, script], env={"PYTHONPATH": str(other)}, capture_output=True, text=True, check=True
    )
    assert path == json.loads(plain.stdout)[0]
    assert "nb2ddp.rehearse.harness.watch" in modules
    assert not {"nb2ddp", "nb2ddp.rehearse"} & set(modules)


def test_a_python_without_nb2ddp_has_none_in_a_rehearsal(python: Path, site: Path) -> None:
    code, _, err = started(python, site, "import nb2ddp\n")
    assert code == 1
    assert "No module named 'nb2ddp'" in err


def test_the_script_gets_the_nb2ddp_that_is_installed_there(python: Path, site: Path) -> None:
    code, out, err = started(python, site, "import nb2ddp\nprint(nb2ddp.__file__)\n", paths=(site,))
    assert (code, out) == (0, f"{site / 'nb2ddp' / '__init__.py'}\n"), err


def test_a_sitecustomize_of_the_machine_runs_too(python: Path, site: Path) -> None:
    own = site.parent / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import sys\nsys.path.append('/added')\n")
    code = "import sitecustomize, sys\nprint(sys.path[-1], sitecustomize.__file__)\n"
    exit_code, out, err = started(python, site, code, paths=(own,))
    assert (exit_code, out) == (0, f"/added {own / 'sitecustomize.py'}\n"), err


def test_a_command_of_a_module_beside_the_script_is_not_run(python: Path, site: Path) -> None:
    """The runtime of a script runs the notebook's shell lines for it."""
    beside = site.parent / "work" / "beside.py"
    beside.parent.mkdir()
    beside.write_text("import subprocess\ndef go():\n    return subprocess.run('touch made', shell=True)\n")
    code, out, err = started(python, site, "import beside\nprint(beside.go().returncode)\n")
    assert (code, out) == (0, "0\n"), err
    assert not (Path.cwd() / "made").exists()
    notes = [json.loads(line) for line in (site.parent / "notes" / "notes-0.jsonl").read_text().splitlines()]
    assert [note["what"] for note in notes if note["kind"] == "replaced"] == ["the command `touch made`"]


def test_a_harness_that_does_not_start_ends_the_rank_with_a_sentence(python: Path, site: Path) -> None:
    code, out, err = started(python, site, "print('trained')\n", plan=False)
    assert (code, out) == (1, "")
    assert err.startswith("nb2ddp: the harness of the rehearsal does not start: FileNotFoundError: ")
    assert len(err.splitlines()) == 1


def test_the_harness_imports_nothing_else_of_nb2ddp(python: Path, site: Path) -> None:
    """What another Python loads must not need our dependencies."""
    code, out, err = started(python, site, TELLS)
    assert code == 0, err
    modules = json.loads(out)[1]
    assert all(name.startswith("nb2ddp.rehearse.harness") for name in modules)


def test_this_python_runs_it_too(site: Path) -> None:
    code, out, err = started(Path(sys.executable), site, "print(1)\n")
    assert (code, out) == (0, "1\n"), err
