"""Check that a converted script finds its packages."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from nb2ddp import libraries
from nb2ddp.ddp_folder import SCRIPT, SETUP, shards
from nb2ddp.doctor.machine import Machine
from nb2ddp.doctor.outcome import Outcome, command, fail, ok, skip
from nb2ddp.doctor.versions import allows
from nb2ddp.errors import NotebookError


def imports_of(folder: Path) -> tuple[str, ...]:
    """Return the top-level packages and modules that the folder's script always imports.

    Raises NotebookError when there is no script that can be read.
    """
    # LibCST, which the doctor does without elsewhere
    from nb2ddp.source.syntax_check import NOT_PYTHON, parse

    path = folder / SCRIPT
    if not path.is_file():
        raise NotebookError(f"{folder} holds no {SCRIPT}; `nb2ddp convert` makes one.")
    try:
        module = parse(path.read_text(encoding="utf-8"))
    except (OSError, *NOT_PYTHON) as error:
        raise NotebookError(f"{path} is not Python that can be read ({error}).") from None
    return tuple(dict.fromkeys(_imports(module)))


def _imports(node: ast.AST) -> Iterator[str]:
    """Yield the imports that always run: none of a branch, a function or a ``try``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield child.module.partition(".")[0]
        elif isinstance(child, ast.With):
            yield from _imports(child)


def script_fits(machine: Machine) -> Outcome:
    """Check that all that the script imports is installed, and that Unsloth can shard where it is asked to."""
    folder = machine.settings.folder
    if folder is None:
        return skip("no folder of a conversion was given")
    script = folder / SCRIPT
    if not machine.markers:
        return skip(f"{script}: the packages of the Python that trains are not known")
    if not machine.missing and (old := _cannot_shard(script, machine)):
        python = machine.settings.python
        wanted = f"unsloth>={libraries.UNSLOTH_SHARDS}"
        return fail(old, command(python, "-m", "pip", "install", "--upgrade", wanted, "unsloth_zoo"))
    if not machine.missing:
        return ok(f"{script}: all that it imports is installed")
    seen = f"{script} imports {', '.join(machine.missing)}, which the Python that trains does not have"
    python = machine.settings.python
    if (folder / SETUP).is_file():
        own = python == sys.executable
        step = command("nb2ddp", "run", folder, "--setup") if own else command(python, folder / SETUP)
        return fail(seen, f"the install step has not run yet: {step}")
    return fail(seen, command(python, "-m", "pip", "install", *machine.missing))


def _cannot_shard(script: Path, machine: Machine) -> str:
    """Return why the model of a script cannot be sharded; empty where it can, or where it is not to be."""
    version = machine.installed.get("unsloth", "")
    try:
        asked = shards(script.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    if not asked or allows(f">={libraries.UNSLOTH_SHARDS}", version):
        return ""
    return f"{script} lets Unsloth shard the model, which unsloth {version} cannot"
