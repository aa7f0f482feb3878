"""Imports point one way: each module knows only what lies below it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

import nb2ddp

PACKAGE = Path(nb2ddp.__file__).parent


def name_of(path: Path) -> str:
    """``rules.batch`` for ``nb2ddp/rules/batch.py``; "" for the package itself."""
    return ".".join(part for part in path.relative_to(PACKAGE).with_suffix("").parts if part != "__init__")


MODULES = {
    name_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))
}
RULES = {name for name in MODULES if name.startswith("rules.")}
CLI = {name for name in MODULES if name == "cli" or name.startswith("cli.")}


def imports(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def at_run_time(tree: ast.AST, *, functions: bool = True) -> Iterator[ast.AST]:
    """The nodes of a module without its ``if TYPE_CHECKING:`` blocks, with or without what runs on call."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not functions:
            continue
        yield child
        yield from at_run_time(child, functions=functions)


@functools.cache
def packages(module: str, *, functions: bool = True) -> frozenset[str]:
    """Everything that a module imports, as dotted names."""
    return frozenset(imports(at_run_time(MODULES[module], functions=functions)))


def ours(module: str, *, functions: bool = True) -> set[str]:
    """The modules of this package that a module imports."""
    found = set()
    for name in packages(module, functions=functions):
        parts = name.split(".")
        if parts[0] == "nb2ddp":
            known = [".".join(parts[1:end]) for end in range(len(parts), 1, -1)]
            found.add(next((n for n in known if n in MODULES), ""))
    return found


def importers(package: str) -> set[str]:
    return {
        module
        for module in MODULES
        if any(name == package or name.startswith(f"{package}.") for name in packages(module))
    }


# Which rooms each room may import. A room not named here fails the test, and so does an arrow up.
ROOMS: dict[str, set[str]] = {
    "errors": set(),
    "runtime": set(),
    "plain_text": set(),
    "output_file": set(),
    "regular_files": set(),
    "rendering": {"plain_text"},
    "libraries": set(),
    "waiting": set(),
    "options": {"errors", "regular_files"},
    "folder_lock": {"errors"},
    "ddp_folder": {"errors", "folder_lock", "plain_text", "regular_files"},
    "secrets": {"regular_files"},
    "source": {"errors", "libraries", "regular_files"},
    "analysis": {"libraries", "source"},
    "rewriting": {"analysis", "options", "runtime", "source"},
    "rules": {"analysis", "libraries", "options", "rewriting", "source"},
    "targets": {"ddp_folder", "errors", "options", "rendering", "source"},
    "conversion": {
        *("analysis", "ddp_folder", "errors", "options", "plain_text", "rendering", "rewriting", "rules"),
        *("runtime", "secrets", "source", "targets"),
    },
    "launch": {"ddp_folder", "errors", "folder_lock", "plain_text", "regular_files", "waiting"},
    "monitor": {"errors", "launch", "plain_text", "rendering", "waiting"},
    "page": {"conversion", "ddp_folder", "options", "rendering", "rewriting", "secrets", "source"},
    "web": {"conversion", "ddp_folder", "errors", "options", "page", "rendering", "source"},
    "kaggle": {"ddp_folder", "errors", "monitor", "regular_files", "secrets", "targets", "waiting"},
    "doctor": {"ddp_folder", "errors", "kaggle", "launch", "libraries", "monitor", "regular_files", "source"},
    "rehearse": {
        *("analysis", "conversion", "ddp_folder", "errors", "launch", "monitor", "options", "output_file"),
        *("rendering", "rewriting", "rules", "secrets", "source", "waiting"),
    },
    "jupyter": {
        *("conversion", "ddp_folder", "errors", "launch", "monitor", "options", "rendering", "secrets"),
        *("source", "waiting"),
    },
    "cli": {
        *("conversion", "ddp_folder", "doctor", "errors", "kaggle", "launch", "monitor", "rehearse", "rules"),
        *("options", "output_file", "page", "plain_text", "secrets", "source", "targets", "waiting", "web"),
    },
}
# Modules with a stricter row than their room's.
MODULES_BELOW: dict[str, set[str]] = {
    "source.cst_nodes": set(),
    "source.ipython_syntax": {"source.line_matcher"},
    "source.line_matcher": set(),
    "source.parser": set(),
    "source.syntax_check": {"source.parser"},
    "source.marimo": {"errors"},
    "source.notebook": {"errors", "regular_files", "source.marimo"},
    "monitor.progress": set(),
    "monitor.console": set(),
    "launch.guard": set(),
    "launch.processes": set(),
    "launch.command": {"errors"},
    "doctor.programs.probe": set(),
    "doctor.programs.all_reduce": set(),
    "doctor.machine": {"launch.command", "monitor.nvml"},
}


def room_of(module: str) -> str:
    return module.partition(".")[0]


@pytest.mark.parametrize("module", sorted(MODULES.keys() - {"", "__main__"}))
def test_a_room_imports_only_rooms_below(module: str) -> None:
    own = room_of(module)
    assert {room_of(name) for name in ours(module)} - {own, ""} <= ROOMS[own]


def test_rooms_form_floors() -> None:
    left = dict(ROOMS)
    while ready := [room for room, below in left.items() if not below & left.keys()]:
        for room in ready:
            del left[room]
    assert not left


@pytest.mark.parametrize(("module", "below"), MODULES_BELOW.items())
def test_a_module_imports_only_what_lies_below(module: str, below: set[str]) -> None:
    assert ours(module) <= below


@pytest.mark.parametrize("module", sorted(RULES))
def test_a_rule_asks_facts_and_knows_no_other_rule(module: str) -> None:
    assert "rules" not in {room_of(name) for name in ours(module)}


def test_no_circle_anywhere() -> None:
    left = {module: ours(module, functions=False) for module in MODULES}
    while ready := {module for module, needs in left.items() if not needs & left.keys() - {""}}:
        left = {module: needs for module, needs in left.items() if module not in ready}
    assert not left


@pytest.mark.parametrize(
    ("package", "modules"),
    [
        ("nbformat", {"source.notebook", "conversion.nbconvert_exporter"}),
        ("jupytext", {"source.notebook"}),
        ("nbconvert", {"conversion.nbconvert_exporter"}),
        ("IPython", {"source.ipython_syntax", "jupyter.arguments", "jupyter.magic", "runtime.shell_lines"}),
        ("libcst.metadata", {"analysis.tree"}),
        ("jinja2", {"rendering"}),
        ("click", CLI),
        ("markupsafe", {"page.highlight", "page.page"}),
        ("pygments", {"page.highlight"}),
        ("psutil", {"doctor.surroundings", "jupyter.environment", "monitor.samples", "waiting"}),
        ("pynvml", {"monitor.nvml"}),
        ("rich", {"conversion.terminal", "monitor.terminal"}),
        ("kaggle", {"kaggle.credentials"}),
        ("kagglesdk", {"kaggle.client", "kaggle.credentials"}),
        ("packaging", {"doctor.versions", "analysis.installs"}),
        ("gradio", {"web.app"}),
        ("huggingface_hub", {"rehearse.harness.hub"}),
    ],
)
def test_a_package_is_known_in_one_place(package: str, modules: set[str]) -> None:
    assert importers(package)
    assert importers(package) <= modules


def test_only_submission_talks_to_the_net() -> None:
    # Unix sockets; whether a port of this machine is free; a link that the user names
    local = {
        "launch.ranks",
        "launch.guard",
        "doctor.surroundings",
        "source.inputs",
        "runtime.watchdog",
        "runtime.ending",
    }
    local |= {"source.public_net"}  # the same, where only public addresses are allowed
    for package in ("requests", "urllib.request", "http.client", "socket", "kaggle", "kagglesdk"):
        assert all(module.startswith("kaggle.") for module in importers(package) - local), package


def test_only_the_command_line_and_the_notebook_know_the_commands() -> None:
    assert importers("nb2ddp.cli") - CLI <= {"__main__", "jupyter.magic"}


@pytest.mark.parametrize("module", [name for name in MODULES if not name.startswith("runtime.")])
def test_nothing_heavy_is_imported_by_importing_us(module: str) -> None:
    heavy = {
        "torch",
        "unsloth",
        "unsloth_zoo",
        "trl",
        "peft",
        "transformers",
        "datasets",
        "kaggle",
        "kagglesdk",
        "gradio",
    }
    assert not {name.partition(".")[0] for name in packages(module, functions=False)} & heavy


@pytest.mark.parametrize("module", ["", *sorted(CLI), "errors", "rendering"])
def test_help_needs_neither_converter_nor_ipython(module: str) -> None:
    roots = {name.partition(".")[0] for name in packages(module, functions=False)}
    assert not roots & {"libcst", "IPython", "nbformat", "nbconvert", "rich"}


def test_conversion_starts_no_process() -> None:
    starting = {"subprocess", "multiprocessing", "importlib", "runpy"}
    for module in MODULES:
        if room_of(module) in ("source", "analysis", "rewriting", "rules", "targets", "conversion"):
            assert not packages(module) & starting, module


@pytest.mark.parametrize("module", sorted(CLI - {"cli.common"}))
def test_commands_print_through_one_function(module: str) -> None:
    """`cli.common.echo` makes outside text safe for a terminal; click's own functions do not."""
    calls = [ast.unparse(node.func) for node in ast.walk(MODULES[module]) if isinstance(node, ast.Call)]
    assert not {"click.echo", "click.secho", "click.style", "print"} & set(calls)


def test_the_runtime_says_of_each_tensor_where_it_is() -> None:
    """A notebook may call ``torch.set_default_device("cuda")``; the list is torch.utils._device's of what it moves."""
    makers = {"arange", "as_tensor", "asarray", "empty", "eye", "full", "linspace", "ones", "rand", "randint"}
    makers |= {"randn", "randperm", "scalar_tensor", "tensor", "zeros"}
    left_out = [
        f"{path.name}:{call.lineno}"
        for path in (PACKAGE / "runtime").glob("*.py")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) in {f"torch.{name}" for name in makers}
        and not any(keyword.arg == "device" for keyword in call.keywords)
    ]
    assert left_out == []
