"""Make the pages of the documentation site from what the project has already: README, code, CONTRIBUTING.

mkdocs calls `on_files` (see mkdocs.yml). Nothing is written here twice: a section of the README becomes a
page, a rule's docstring becomes a page, and so do the errors and the benchmarks. `make site` builds it.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS)]

import make_table  # noqa: E402

from nb2ddp import errors  # noqa: E402
from nb2ddp.cli.rules import page_of  # noqa: E402
from nb2ddp.rules import RULES  # noqa: E402

# The pages that are sections of the README, by their headings.
SECTIONS = {
    "quickstart.md": ["Try it, without a GPU", "Commands"],
    "promise.md": ["What it promises", "What is changed, and why"],
    "kaggle.md": ["On Kaggle"],
    "jupyter.md": ["In the notebook itself"],
    "clusters.md": ["On a cluster", "When one GPU is too small for the model"],
    "doctor.md": ["Check the machine"],
}
TITLES = {"quickstart.md": "Quick start"}
# What docs/make_pictures.py shows of the commands on a page: a heading, the file, and what stands in it.
PICTURES = {
    "quickstart.md": (
        "In a terminal of 80 columns",
        "terminal-80.svg",
        "pip install, then nb2ddp convert, rehearse and run on the CPU, with what they print",
    ),
    "jupyter.md": (
        "In JupyterLab",
        "jupyterlab.png",
        "a notebook whose last cell begins with %%run_ddp; below it the bar, the losses and the result of the run",
    ),
}
BENCHMARKS = (
    "gpus",
    "kinds",
    "differential",
    "even",
    "ledger",
    "releases",
    "corpus",
    "convert_speed",
    "rehearsals",
    "soak",
    "fuzz",
    "web_load",
)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put a page for each rule into the navigation."""
    rules = [f"rules/{name}.md" for name in ("index", *(rule.name for rule in RULES))]
    config.nav = [{"Rules": rules} if entry == "rules" else entry for entry in config.nav or []]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from elsewhere to those that lie in docs/."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def pages() -> dict[str, str]:
    """Return the made pages by their path in the site."""
    made = {name: _from_readme(name, headings) for name, headings in SECTIONS.items()}
    for name, (heading, file, shows) in PICTURES.items():
        made[name] += f"\n## {heading}\n\n![{shows}](pictures/{file})\n"
    made |= {"index.md": _start(), "architecture.md": _read("CONTRIBUTING.md")}
    made |= {"measured.md": _measured(), "troubleshooting.md": _troubleshooting(), "rules/index.md": _rules()}
    made |= {f"rules/{rule.name}.md": _rule(rule) for rule in RULES}
    return {name: _relative(text, name) for name, text in made.items()}


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _relative(text: str, page: str) -> str:
    """Make links to pages of docs/ lead into the site, and other paths into the repository."""
    up = "../" * page.count("/")
    text = text.replace(f"{errors.REPOSITORY}/blob/main/CONTRIBUTING.md", f"{up}architecture.md")
    return re.sub(rf"{errors.REPOSITORY}/blob/main/docs/([\w/]+\.md)", rf"{up}\1", text)


# ---- from the README ----------------------------------------------------------------------------

# An address that package indexes show too.
_PICTURES = f"{errors.REPOSITORY.replace('github.com', 'raw.githubusercontent.com')}/main/docs/pictures/"


def _sections() -> dict[str, str]:
    """Return the README's sections by heading; what stands above the first is ""."""
    readme = _read("README.md").replace(_PICTURES, "pictures/")  # the site loads nothing from elsewhere
    parts = _HEADING.split(readme)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def _start() -> str:
    """Return what stands above the README's first section; the sections that it links to are on another page."""
    return _sections()[""].replace("](#", "](promise.md#")


def _from_readme(name: str, headings: list[str]) -> str:
    """Return a page of sections; each heading goes up by one level.

    Raises:
        KeyError: the README has no such section.
    """
    sections = _sections()
    title = TITLES.get(name)
    parts = [f"# {title}\n"] if title else []
    for heading in headings:
        body = sections[heading]
        if title is None:
            body = re.sub(r"^###", "##", body, flags=re.MULTILINE)
        first = title is None and not parts
        parts.append(f"{'#' if first else '##'} {heading}\n{body}")
    return "\n".join(parts)


# ---- from the code ------------------------------------------------------------------------------


def _rules() -> str:
    rows = "".join(
        make_table.row(f"[`{rule.name}`]({rule.name}.md)", page_of(rule.doc).summary) for rule in RULES
    )
    return (
        "# Rules\n\nIn the order in which they are applied. `nb2ddp rules RULE` prints the same.\n\n"
        f"| rule | what it does |\n|---|---|\n{rows}"
    )


def _rule(rule: make_table.Rule) -> str:
    page = page_of(rule.doc)
    module = inspect.getmodule(rule.find)
    assert module is not None
    source = inspect.getsource(module)
    title = "In the notebook (-) and in the script (+):" if page.changes else "For example:"
    parts = [f"# `{rule.name}`", page.summary, *page.paragraphs, title]
    parts.append("\n".join(["```diff", *(line.rstrip() for line in page.diff), "```"]))
    for kind, heading in (("Decline", "What is declined"), ("Note", "What is noted")):
        if found := make_table.sentences(source, kind):
            parts += [f"## {heading}", "\n".join(f"- {_escaped(text)}" for text in found)]
    return "\n\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    """Keep what is no markup from being taken for some: text in backquotes stays code."""
    outside = re.split(r"(`[^`]*`)", text)
    outside[::2] = [re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in outside[::2]]
    return "".join(outside)


def _troubleshooting() -> str:
    """Return the sentences of the errors that the code raises, by the class that says what went wrong."""
    found: dict[str, dict[str, None]] = {}
    for path in sorted((ROOT / "nb2ddp").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            call = node.exc if isinstance(node, ast.Raise) else None
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute) and call.args:
                name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr
                if len(text := " ".join(make_table.text(call.args[0]).split())) > 20:
                    found.setdefault(name, {})[text] = None
    parts = [
        "# Troubleshooting",
        "Each error is one sentence: what, where, and what to do. `nb2ddp doctor` finds what a machine lacks, "
        "`nb2ddp rehearse` what a run would stumble over. These are the sentences of the code, with … for names "
        "and numbers, by what went wrong; [exit codes](exit_codes.md) has the code of each kind.",
    ]
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and kind.__name__ in found]
    for kind in kinds:
        if issubclass(kind, errors.Nb2ddpError):
            parts += [f"## {make_table.summary(kind).rstrip('.')}"]
            parts += [f"`{kind.__name__}`, exit code {kind.exit_code}."]
            parts += ["\n".join(f"- {_escaped(text)}" for text in found[kind.__name__])]
    return "\n\n".join(parts) + "\n"


def _measured() -> str:
    parts = [
        "# How it was measured",
        "The programs below print the figures. They are in `benchmarks/`; their docstrings stand here.",
    ]
    for name in BENCHMARKS:
        doc = (ast.get_docstring(ast.parse(_read(f"benchmarks/{name}.py"))) or "").replace("``", "`")
        parts += [f"## `benchmarks/{name}.py`", f"```text\n{doc}\n```"]
    return "\n\n".join(parts) + "\n"
