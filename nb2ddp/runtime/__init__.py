"""The module that travels with every generated script, in parts. It imports nothing of nb2ddp's own.

A script imports one file, `ddp_support.py`. Here it is several modules, each for one topic, whose imports run one
way: `PARTS` names them in that order, and `support_module` joins them. A name stands in one part alone.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

# A part imports only those above it.
PARTS = (
    "run_state",
    "spot_checks",
    "script_location",
    "random_numbers",
    "metrics",
    "value_copies",
    "module_state",
    "random_rows",
    "store",
    "object_collectives",
    "rank_zero",
    "same_data",
    "saving",
    "batch_share",
    "gradients",
    "split_classes",
    "autograd_collectives",
    "call_results",
    "replicas",
    "averaged_backward",
    "autograd_patches",
    "ending",
    "watchdog",
    "unsloth_sharding",
    "repeated_writes",
    "process_group",
    "loops",
    "call_settings",
    "batch_parts",
    "value_reads",
    "output_gathering",
    "recomputed_calls",
    "divided_calls",
    "even_shares",
    "even_batches",
    "notebook_losses",
    "collating",
    "batches",
    "whole_loaders",
    "evaluation",
    "losses",
    "trl_losses",
    "rank_zero_logging",
    "streams",
    "trainer",
    "shards",
    "compatibility",
)

_DOCSTRING = """\
DDP support for a training script that nb2ddp generated: one process (rank) per GPU, started by torchrun.

The script imports this module as ``ddp`` and needs nothing else of nb2ddp, whose licence is Apache-2.0. Under plain
``python`` (one process) every function does what the notebook did, and waits for nothing.

How the ranks work together:

- Before the process group exists, and for whatever may take longer than a collective may, ranks meet through
  torchrun's key-value store: `main_process_only`, `main_process_first`, `from_main_process` and the like. All
  ranks pass the same meetings in the same order; an exception that rank 0 raises in one is raised on all ranks.
- While they train, gradients are averaged by DistributedDataParallel: `wrap_trainer`, `parallelize`.
- A watchdog thread in each rank reports where the rank stands. When ranks can no longer meet (one has left,
  stopped, or waits at another place), it ends the run with a sentence that names the rank and the place.

Environment variables:

NB2DDP_SHARED_FS=0  several machines, each with a disk of its own: local rank 0 of each writes its files
NB2DDP_PATIENCE     seconds that ranks wait in a collective for a rank that is busy elsewhere (default 45)
NB2DDP_CHECKS=N     how many of the first 300 steps are recomputed as one process does (default 5), or "off"
NB2DDP_STRICT=1     a check that fails ends the run with exit code 1, once it has saved

What a script calls, by the part of this file:

@functions@
"""
_HEADER = re.compile(
    r'"""(?P<docstring>.*?)"""\n(?P<imports>(?:(?:import |from |if TYPE_CHECKING:|    |\))[^\n]*\n|\n)*)',
    re.DOTALL,
)
# A name that a part defines for scripts.
PUBLIC = re.compile(r"^(?:def |class |(?=\w+(?:: \w+)? = ))([a-z]\w*)", re.MULTILINE)
_LINE_LENGTH = 110

_Imports = set[tuple[str, str, str]]  # module, name ("" for the module itself), what it is bound to


@functools.cache
def support_module() -> str:
    """Return the text of `ddp_support.py`, which is written beside the script or into it."""
    imports: _Imports = set()
    functions, bodies = [], []
    for name in PARTS:
        text = (Path(__file__).parent / f"{name}.py").read_text(encoding="utf-8")
        header = _HEADER.match(text)
        assert header is not None, f"{name}.py begins with a docstring and its imports"
        body = text[header.end() :].strip("\n")
        imports |= _imports(header["imports"])
        about = textwrap.indent(header["docstring"].strip(), "# ", lambda line: True).replace("# \n", "#\n")
        bodies.append(f"{f'# ---- {name} '.ljust(_LINE_LENGTH, '-')}\n#\n{about}\n\n\n{body}\n")
        if public := PUBLIC.findall(body):
            functions.append(_entry(name, public))
    docstring = _DOCSTRING.replace("@functions@", "\n".join(functions))
    return f'"""{docstring}"""\n\n{_import_lines(imports)}\n' + "\n\n".join(bodies)


def _imports(text: str) -> _Imports:
    """Return what a part imports of Python and of PyTorch."""
    found: _Imports = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "", alias.asname or "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith("nb2ddp."):
            found |= {(node.module, alias.name, alias.asname or "") for alias in node.names}
    return found - {("typing", "TYPE_CHECKING", "")}


def _import_lines(imports: _Imports) -> str:
    """Return imports in the order that ruff gives them: Python's own first, each module's names on a line."""
    sections: dict[bool, list[str]] = {True: [], False: []}
    for module, name, bound in sorted(imports):
        if not name:
            suffix = f" as {bound}" if bound else ""
            sections[_is_pythons(module)].append(f"import {module}{suffix}")
    for module in sorted({module for module, name, _ in imports if name}):
        names = [(name, bound) for of, name, bound in imports if of == module and name]
        sections[_is_pythons(module)] += _from_import(module, names)
    return "\n\n".join("\n".join(lines) for lines in sections.values()) + "\n"


def _is_pythons(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _from_import(module: str, names: Iterable[tuple[str, str]]) -> list[str]:
    """Return the lines of one ``from ... import ...``; constants come first, then classes, then functions."""
    plain = sorted(
        (name for name, bound in names if not bound),
        key=lambda name: (not name.isupper(), name[0].islower(), name),
    )
    lines = [f"from {module} import {', '.join(plain)}"] if plain else []
    if lines and len(lines[0]) > _LINE_LENGTH:
        lines = [f"from {module} import (", *(f"    {name}," for name in plain), ")"]
    return lines + sorted(f"from {module} import {name} as {bound}" for name, bound in names if bound)


def _entry(part: str, public: Iterable[str]) -> str:
    """Return the lines of the docstring that name a part's functions."""
    label = f"{part:<18}  "
    return textwrap.fill(", ".join(public), 108, initial_indent=label, subsequent_indent=" " * len(label))
