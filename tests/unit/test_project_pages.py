"""What stands in the pages of the project: addresses, the citation, commands."""

from __future__ import annotations

import datetime
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import click
import pytest
import yaml

import nb2ddp
from nb2ddp.cli import main
from nb2ddp.conversion.pipeline import convert
from nb2ddp.conversion.report import batches
from nb2ddp.ddp_folder import edited_since
from nb2ddp.errors import REPOSITORY, install_command
from nb2ddp.runtime import support_module
from tests.support import ROOT, SAMPLES


def pages() -> list[Path]:
    """Return the Markdown pages and the metadata that the project publishes."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    names = listed.stdout.splitlines() or [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.md")]
    return [ROOT / name for name in names if name.endswith((".md", ".toml", ".cff", ".yml"))]


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_repository_has_one_address(path: Path) -> None:
    ours = r"https?://github\.com/[\w.-]+/nb2ddp\b"
    found = set(re.findall(ours, path.read_text(encoding="utf-8")))
    assert found <= {REPOSITORY}, "nb2ddp.errors.REPOSITORY has the address"


def test_links_into_the_repository_lead_to_files() -> None:
    links = [
        (path, name)
        for path in pages()
        for name in re.findall(
            rf"{REPOSITORY}/(?:blob|tree)/main/([^\s)\"#]+)", path.read_text(encoding="utf-8")
        )
    ]
    assert len(links) > 3
    missing = [(path.name, name) for path, name in links if not (ROOT / name).exists()]
    assert not missing


def test_version_citation_and_changelog_name_one_release() -> None:
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert metadata["version"] == nb2ddp.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == nb2ddp.__version__
    assert citation["repository-code"] == REPOSITORY
    assert {"cff-version", "message", "title", "authors"} <= citation.keys(), "what the format asks for"
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    first, *releases = re.findall(r"^## (.+)$", changes, re.MULTILINE)
    assert first == "Unreleased"
    dates = [datetime.date.fromisoformat(release.rpartition(" - ")[2]) for release in releases]
    assert releases[0] == f"{nb2ddp.__version__} - {citation['date-released']}"
    assert dates == sorted(dates, reverse=True)
    assert dates[0] <= datetime.date.today()


def test_the_description_on_an_index_has_no_dead_link() -> None:
    """An index shows the README alone: no link leads to a file beside it, and those of ours lead to files."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", readme, flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    titles = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    headings = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
    raw = REPOSITORY.replace("github.com", "raw.githubusercontent.com")
    assert len(targets) > 5
    for target in targets:
        assert target.startswith(("https://", "#")), target
        for start in (f"{REPOSITORY}/blob/main/", f"{REPOSITORY}/tree/main/", f"{raw}/main/"):
            if target.startswith(start):
                assert (ROOT / target.removeprefix(start).partition("#")[0]).exists(), target
        if target.startswith("#"):
            assert target[1:] in headings, target


def test_the_readme_is_short_and_its_figures_have_a_spread() -> None:
    """A person with a notebook reads it in some minutes; a figure in it was measured three times or more."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 150
    prose = re.sub(r"^```.*?^```", "", readme, flags=re.DOTALL | re.MULTILINE)
    assert "one run each" not in prose
    for section in re.split(r"^## ", prose, flags=re.MULTILINE):
        if re.search(r"\b\d+\.\d+x", section):
            assert "Medians of three rounds or more" in section


def files_that_users_read() -> list[Path]:
    suffixes = {".py", ".j2", ".md", ".ipynb", ".txt", ".yml", ".yaml"}
    folders = ("nb2ddp", "templates", "docs", "spaces", "sample_notebooks")
    found = [path for name in folders for path in (ROOT / name).rglob("*") if path.suffix in suffixes]
    return [*found, ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]


def test_every_install_command_is_the_one_that_works_today() -> None:
    """Until `nb2ddp.errors.PUBLISHED` says so no index has the name, and no page or message may ask for it there."""
    seen = 0
    for path in files_that_users_read():
        for quote, name, extra, source in re.findall(
            r"pip install (\\?[\"']?)(nb2ddp(?:\[(\w+)\])?)( @ git\+[\w:/.-]+)?",
            path.read_text(encoding="utf-8"),
        ):
            seen += 1
            written = f'pip install "{name}{source.rstrip(".")}"'
            assert written == install_command(extra), (str(path), quote)
    assert seen > 5


def test_the_gallery_is_what_convert_writes_with_what_the_ledger_has_measured(tmp_path: Path) -> None:
    """docs/gallery.md is compared with its source in test_contracts.py."""
    done = subprocess.run([sys.executable, ROOT / "docs" / "make_gallery.py", tmp_path], capture_output=True)
    assert done.returncode == 0, done.stderr
    ledger = json.loads((ROOT / "docs" / "ledger" / "ledger.json").read_text(encoding="utf-8"))["rows"]
    folders = sorted(tmp_path.iterdir())
    assert len(folders) == 3
    for folder in folders:
        notebook = SAMPLES / f"{folder.name.removesuffix('_ddp')}.ipynb"
        made = {name: (folder / name).read_text(encoding="utf-8") for name in convert(notebook).files}
        assert made == convert(notebook).files
        assert not edited_since(folder)
        assert json.loads(made["kaggle/kernel-metadata.json"])["enable_gpu"]
        assert (folder / notebook.name).read_bytes() == notebook.read_bytes()
        proof = (folder / "PROOF.md").read_text(encoding="utf-8")
        measured = [row for row in ledger if row["notebook"] == notebook.stem]
        assert any(row["ranks"] == 2 for row in measured)
        for row in measured:
            assert f"| {row['ranks']} | {row['verdict']}" in proof
            assert f"| {row['loss_difference'] or 0:.1e} |".replace("0.0e+00", "0") in proof


@pytest.mark.parametrize(
    ("picture", "sample"), [("run.svg", "alpaca_sft.ipynb"), ("terminal-80.svg", "peft_loop.ipynb")]
)
def test_a_picture_shows_what_convert_prints_and_loads_nothing(picture: str, sample: str) -> None:
    """docs/make_pictures.py makes them; the runs in them take minutes."""
    svg = (ROOT / "docs" / "pictures" / picture).read_text(encoding="utf-8")
    root = ElementTree.fromstring(svg)
    assert set(re.findall(r"https?://[^\s\"')]+", svg)) == {"http://www.w3.org/2000/svg"}
    shown = "".join("".join(root.itertext()).split())
    conversion = convert(SAMPLES / sample)
    for change in conversion.changes:
        assert "".join(f"{change.why} [{change.rule}]".split()) in shown
    for text in ("2 replicas equal, bit for bit", *batches(conversion.changes, 2)):
        assert "".join(text.split()) in shown


def test_pictures_are_small_and_name_no_folder_of_a_machine() -> None:
    pictures = sorted((ROOT / "docs" / "pictures").iterdir())
    assert {path.suffix for path in pictures} == {".png", ".svg"}
    for path in pictures:
        assert path.stat().st_size < 200_000, path.name
        if path.suffix == ".svg":
            text = path.read_text(encoding="utf-8").replace("&#160;", " ")
            assert not re.search(r"/(?:home|root|tmp|usr|work)/", text), path.name


def test_the_conventions_that_docs_peers_shares_with_ruff(tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    (tmp_path / "a.py").write_text("import os\n")
    (tmp_path / "a.ipynb").write_text('{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}')

    def code(*command: str) -> int:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, env=environment, capture_output=True
        ).returncode

    assert code("ruff", "check", "a.py") == code("nb2ddp", "convert", "a.ipynb") == 1
    assert code("ruff", "check", "--nope") == code("nb2ddp", "convert", "--nope") == 2
    (forms,) = (p.type for p in main.commands["convert"].params if p.name == "output_format")
    assert isinstance(forms, click.Choice)
    for form in forms.choices:
        assert code("ruff", "check", "a.py", "--output-format", form) == 1


# ---- commands -------------------------------------------------------------------------------------

COMMANDS = sorted(
    {
        (str(path.relative_to(ROOT)), command)
        for path in pages()
        if path.suffix == ".md" and path.name != "CHANGELOG.md"
        for command in re.findall(
            r"(?:^|`|\$ )(nb2ddp +[a-z][^`\n]*)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
)


def words(command: str) -> list[str]:
    """Return a written command as its arguments, with the first of several choices."""
    command = re.sub(r"\s+#.*|\s{3,}\(.*|[\[\]]|\.\.\.|\s+->.*", "", command.replace("\\\\|", "|"))
    return [word.split("|")[0].rstrip("\\") for word in shlex.split(command)][1:]


def test_there_are_commands() -> None:
    assert len(COMMANDS) > 30
    assert set(main.commands) <= {words(command)[0] for _, command in COMMANDS}


def fault(name: str, arguments: list[str]) -> str:
    """Return what the command line has against a written command; it is parsed, and not run."""
    if name not in main.commands:
        return f"there is no command {name}"
    try:
        settings: Any = main.context_settings  # click keeps a command's --help as the first context has it
        above = click.Context(main, info_name="nb2ddp", **settings)
        main.commands[name].make_context(name, arguments, parent=above)
    except click.exceptions.Exit:  # --help
        return ""
    except click.MissingParameter as error:  # a command that is named, and no example
        return "" if isinstance(error.param, click.Argument) and not arguments else error.format_message()
    except click.UsageError as error:  # files of the example are not here
        return "" if "does not exist" in error.format_message() else error.format_message()
    return ""


@pytest.mark.parametrize(("page", "command"), COMMANDS)
def test_a_written_command_is_one(page: str, command: str) -> None:
    name, *arguments = words(command)
    assert fault(name, arguments) == ""


def test_a_wrong_command_is_found() -> None:
    assert fault("convert", ["x.ipynb", "--no-such-option"])
    assert fault("convert", ["x.ipynb", "--batch", "other"])
    assert fault("konvert", ["x.ipynb"])


def test_an_option_or_a_variable_that_a_page_names_exists() -> None:
    """docs/commands.md is made from the code; docs/peers.md names options of other tools."""
    docs = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    del docs["peers.md"]
    named = re.findall(r"`(--[a-z-]+)", "".join([*docs.values(), (ROOT / "README.md").read_text()]))
    assert len(named) > 100
    assert set(named) <= set(re.findall(r"--[a-z-]+", docs["commands.md"]))
    variables = re.findall(r"^(NB2DDP_\w+)", support_module(), re.MULTILINE)
    assert len(variables) > 3
    assert [name for name in variables if name not in docs["configuration.md"]] == []


PACKAGE = "".join(
    re.sub(r'"\s*\n\s*f?"', "", path.read_text(encoding="utf-8")) for path in (ROOT / "nb2ddp").rglob("*.py")
)
SYMPTOMS = re.findall(
    r'^### "(.*?)"', (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE
)
FROM_OUTSIDE = {"Killed", "Maximum batch GPU session count of 2 reached"}  # the kernel's words, and Kaggle's


@pytest.mark.parametrize("symptom", [words for words in SYMPTOMS if words not in FROM_OUTSIDE])
def test_the_words_of_a_symptom_are_what_is_printed(symptom: str) -> None:
    pieces = [piece.strip(" .;") for piece in re.split(r"\.\.\.|[\d.,]+|rank|WAITING|lock", symptom)]
    assert max(map(len, pieces)) > 7
    assert [piece for piece in pieces if piece not in PACKAGE] == []
