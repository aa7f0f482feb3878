"""Make the pages of the documentation site that are elsewhere already: README, CONTRIBUTING, CHANGELOG, docstrings.

mkdocs calls `on_files` (see mkdocs.yml). The other pages lie in docs/. `make site` builds it.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS)]

import make_table  # noqa: E402

import nb2ddp  # noqa: E402
from nb2ddp import errors, runtime  # noqa: E402
from nb2ddp.cli.rules import page_of  # noqa: E402
from nb2ddp.jupyter.result import Result  # noqa: E402
from nb2ddp.rules import RULES  # noqa: E402

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
_VALUES = {
    "is_main_process": "Whether this process is rank 0. True under plain `python`.",
    "has_bf16": "Whether this rank computes in bf16: on a CPU, and on GPUs newer than a T4.",
    "show": "Print the value of a cell's last line, as a notebook does; this is `sys.displayhook`.",
}
"""What `ddp` has beside functions and classes, which have docstrings."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from elsewhere to those that lie in docs/."""
    from mkdocs.structure.files import File

    for name, text in pages().items():
        files.append(File.generated(config, name, content=text))
    return files


def pages() -> dict[str, str]:
    """Return the made pages by their path in the site."""
    made = {
        "index.md": _read("README.md").replace(
            _PICTURES, "pictures/"
        ),  # the site loads nothing from elsewhere
        "architecture.md": _read("CONTRIBUTING.md"),
        "changelog.md": _read("CHANGELOG.md"),
        "measured.md": _measured(),
        "rules.md": _rules(),
        "api.md": _api(),
    }
    return {name: _relative(text, name) for name, text in made.items()}


def _read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def _relative(text: str, page: str) -> str:
    """Make links to pages of docs/ lead into the site, and other paths into the repository."""
    up = "../" * page.count("/")
    text = text.replace(f"{errors.REPOSITORY}/blob/main/CONTRIBUTING.md", f"{up}architecture.md")
    return re.sub(rf"(?:{errors.REPOSITORY}/blob/main/|(?<=\]\())docs/([\w/]+\.md)", rf"{up}\1", text)


# An address that package indexes show too.
_PICTURES = f"{errors.REPOSITORY.replace('github.com', 'raw.githubusercontent.com')}/main/docs/pictures/"


# ---- from the code ------------------------------------------------------------------------------


def _rules() -> str:
    rows = "".join(
        make_table.row(f"[`{rule.name}`](#{rule.name})", page_of(rule.doc).summary) for rule in RULES
    )
    top = (
        "# Rules\n\nIn the order in which they are applied. `nb2ddp rules NAME` prints the same.\n\n"
        f"| rule | what it does |\n|---|---|\n{rows}"
    )
    return "\n".join([top, *map(_rule, RULES)])


def _rule(rule: make_table.Rule) -> str:
    page = page_of(rule.doc)
    module = inspect.getmodule(rule.find)
    assert module is not None
    source = inspect.getsource(module)
    title = "In the notebook (-) and in the script (+):" if page.changes else "For example:"
    parts = [f"## `{rule.name}`", page.summary, *page.paragraphs, title]
    parts.append("\n".join(["```diff", *(line.rstrip() for line in page.diff), "```"]))
    for kind, heading in (("Decline", "Declined:"), ("Note", "Noted:")):
        if found := make_table.sentences(source, kind):
            parts += [f"**{heading}**", "\n".join(f"- {_escaped(text)}" for text in found)]
    return "\n\n".join(parts) + "\n"


def _escaped(text: str) -> str:
    """Keep what is no markup from being taken for some: text in backquotes stays code."""
    outside = re.split(r"(`[^`]*`)", text)
    outside[::2] = [re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in outside[::2]]
    return "".join(outside)


def _api() -> str:
    """Return what Python code may call: nb2ddp's own names, those of a script's `ddp`, and the result of the magic."""
    parts = [
        "---\nsearch: {boost: 4}\n---",  # names of commands and rules hold the same words
        "# API",
        "From the docstrings. The command line is on [a page of its own](commands.md).",
        "## `nb2ddp` in Python",
        '```python\nimport nb2ddp\n\nconversion = nb2ddp.convert("finetune.ipynb", nproc=4)\n'
        'print(conversion.status, conversion.files["train_ddp.py"])\n```',
        *_entry("nb2ddp.convert", nb2ddp.convert),
        *_entry("nb2ddp.Conversion", nb2ddp.Conversion),
        *_entry("nb2ddp.Options", nb2ddp.Options),
        "## `_ddp`, the result of `%run_ddp`",
        *_entry("Result", Result),
    ]
    for name, member in vars(Result).items():
        if (
            not name.startswith("_")
            and inspect.getdoc(member)
            and (inspect.isfunction(member) or _is_property(member))
        ):
            parts += _entry(f"_ddp.{name}", member)
    parts += [
        "## `ddp` in a script",
        "A script imports `ddp_support.py`, which lies beside it, as `ddp`. Under plain `python` each function does "
        "what the notebook did. They are listed by the part of the file in which they stand.",
    ]
    for part in runtime.PARTS:
        text = _read(f"nb2ddp/runtime/{part}.py")
        tree = ast.parse(text)
        if public := runtime.PUBLIC.findall(text):
            parts += [f"### {part.replace('_', ' ').capitalize()}", _prose(ast.get_docstring(tree) or "")]
        defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        for name in public:
            node = defined.get(name)
            parts += [f"#### `ddp.{name}`"]
            if node is None:  # a value
                parts += [_VALUES[name]]
                continue
            made = [
                part for part in node.body if isinstance(part, ast.FunctionDef) and part.name == "__init__"
            ]
            called = made[0] if made else node
            arguments = ast.unparse(called.args) if isinstance(called, ast.FunctionDef) else ""
            arguments = arguments.removeprefix("self").removeprefix(", ")
            parts += [f"```python\nddp.{name}({arguments})\n```", _prose(ast.get_docstring(node) or "")]
    parts += ["## The report", "`report.json`, and what `nb2ddp convert --json` prints:", _report()]
    return "\n\n".join(parts) + "\n"


def _is_property(member: object) -> bool:
    return isinstance(member, property)


def _entry(name: str, thing: Any) -> list[str]:
    """Return the heading of a function or class, its signature, and its docstring."""
    if _is_property(thing):
        return [f"### `{name}`", _prose(inspect.getdoc(thing) or "")]
    signature = str(inspect.signature(thing)).replace("nb2ddp.options.", "").replace("self, ", "")
    return [f"### `{name}`", f"```python\n{name}{signature}\n```", _prose(inspect.getdoc(thing) or "")]


def _prose(docstring: str) -> str:
    """Return a docstring as Markdown: its sections (Args, Raises) become lists; what follows `::` stays code."""
    parts = docstring.replace("``", "`").split("\n\n")
    for number, part in enumerate(parts):
        if section := re.match(r"(Args|Raises|Returns|Yields):\n", part):
            items = re.sub(r"^    (\w[^\n:]*): ", r"- `\1`: ", part[section.end() :], flags=re.MULTILINE)
            parts[number] = f"**{section[1]}:**\n\n" + items.replace("\n        ", "\n  ")
        elif part.endswith("::"):
            parts[number] = part[:-1]
    return "\n\n".join(parts)


def _report() -> str:
    schema = json.loads(_read("docs/report.schema.json"))
    rows = [make_table.row(f"`{name}`", of["description"]) for name, of in schema["properties"].items()]
    entry = schema["properties"]["changes"]["items"]["properties"]
    rows += [make_table.row(f"`changes[].{name}`", of["description"]) for name, of in entry.items()]
    return "| key | what it holds |\n|---|---|\n" + "".join(rows) + "\n[JSON schema](report.schema.json)"


def _measured() -> str:
    parts = [
        "# How it was measured",
        "The programs below print the figures. They are in `benchmarks/`; their docstrings stand here.",
    ]
    for name in BENCHMARKS:
        doc = (ast.get_docstring(ast.parse(_read(f"benchmarks/{name}.py"))) or "").replace("``", "`")
        parts += [f"## `benchmarks/{name}.py`", f"```text\n{doc}\n```"]
    return "\n\n".join(parts) + "\n"
