"""The wheel and the sdist: what is in them, and that the wheel converts a notebook where no checkout is."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import nb2ddp
from nb2ddp.errors import ISSUES_URL, REPOSITORY
from nb2ddp.rendering import templates_dir
from tests.support import ROOT
from tests.support.installed import built

TEMPLATES = {str(path.relative_to(ROOT / "templates")) for path in (ROOT / "templates").rglob("*.j2")}
FOLDERS = ("docs", "nb2ddp", "sample_notebooks", "spaces", "templates", "tests")  # what `make test` needs


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("sdist", tmp_path_factory.mktemp("sdist"))


def test_the_wheel_holds_every_module_and_template(wheel: Path) -> None:
    modules = {f"nb2ddp/{path.relative_to(ROOT / 'nb2ddp')}" for path in (ROOT / "nb2ddp").rglob("*.py")}
    templates = {f"nb2ddp/templates/{name}" for name in TEMPLATES}
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert templates
    tables = {f"nb2ddp/{path.relative_to(ROOT / 'nb2ddp')}" for path in (ROOT / "nb2ddp").rglob("*.toml")}
    assert "nb2ddp/secrets/rules.toml" in tables
    assert inside == modules | templates | tables | {"nb2ddp/py.typed"}


def test_the_sdist_holds_the_checkout_and_makes_the_same_wheel(
    sdist: Path, wheel: Path, tmp_path: Path
) -> None:
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    ours = {path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()}
    wanted = {str(path.relative_to(ROOT)) for path in ours if "__pycache__" not in path.parts}
    inside = {str(path.relative_to(source)) for path in source.rglob("*")}
    assert wanted | {"LICENSE", "Makefile", "README.md", "pyproject.toml"} <= inside
    again = built("wheel", tmp_path / "again", source)
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as other:
        assert {info.filename: info.CRC for info in one.infolist()} == {
            info.filename: info.CRC for info in other.infolist()
        }


def test_an_index_takes_them(wheel: Path, sdist: Path) -> None:
    pytest.importorskip("twine", reason="twine is not installed")
    command = [sys.executable, "-m", "twine", "--no-color", "check", "--strict", str(wheel), str(sdist)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


def test_the_wheel_tells_its_commands(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = f"nb2ddp-{nb2ddp.__version__}.dist-info"
        entry_points = archive.read(f"{info}/entry_points.txt").decode()
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    assert "nb2ddp = nb2ddp.cli:main" in entry_points
    assert "ddp = nb2ddp.conversion.nbconvert_exporter:DDPExporter" in entry_points
    assert metadata["Version"] == nb2ddp.__version__
    assert {"kaggle", "train", "dev"} <= set(metadata.get_all("Provides-Extra") or [])
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL") or [])
    assert urls["Repository"] == REPOSITORY
    assert urls["Issues"] == ISSUES_URL
    assert {"Documentation", "Changelog"} <= urls.keys()
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_the_wheel_converts_where_no_checkout_is(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(installed)
    sample = ROOT / "sample_notebooks" / "alpaca_sft.ipynb"
    code = (
        "import sys, nb2ddp\n"
        "from nb2ddp.rendering import templates_dir\n"
        "print(nb2ddp.__file__, templates_dir(), sep='\\n', file=sys.stderr)\n"
        f"sys.stdout.write(nb2ddp.convert({str(sample)!r}).files['train_ddp.py'])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    package, templates = result.stderr.splitlines()
    assert Path(package).is_relative_to(installed)
    assert Path(templates) == installed / "nb2ddp" / "templates"
    assert result.stdout == nb2ddp.convert(sample).files["train_ddp.py"]


def test_a_checkout_finds_its_templates() -> None:
    assert templates_dir() == ROOT / "templates"
    assert {str(path.relative_to(templates_dir())) for path in templates_dir().rglob("*.j2")} == TEMPLATES
