"""The module that travels with every generated script, in parts. It imports nothing of nb2ddp's own.

A script imports one file, `ddp_support.py`. Here it is several modules, each for one topic, whose imports run one
way: `PARTS` names them in that order, and `support_module` joins them. A name stands in one part alone.
"""

from __future__ import annotations

import ast
import collections
import functools
import re
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path

# A part imports only those above it.
PARTS = (
    "run_state",
    "gpu_kind",
    "script_location",
    "process_signs",
    "random_numbers",
    "random_draws",
    "digests",
    "kept_values",
    "value_copies",
    "module_state",
    "dropout_rows",
    "random_rows",
    "store",
    "object_collectives",
    "spot_checks",
    "rank_zero",
    "prepared_data",
    "shell_lines",
    "shared_processes",
    "own_files",
    "trackers",
    "whole_files",
    "one_after_another",
    "same_losses",
    "one_process",
    "accelerators",
    "gradients",
    "unseen_gradients",
    "split_classes",
    "autograd_collectives",
    "call_results",
    "replicas",
    "other_replicas",
    "averaged_backward",
    "autograd_patches",
    "ending",
    "watchdog",
    "process_group",
    "saving",
    "callbacks",
    "figure_values",
    "figure_rules",
    "figures",
    "switches",
    "summed_gradients",
    "held_tensors",
    "micro_batch_rows",
    "row_parts",
    "gathered_rows",
    "step_plans",
    "checked_steps",
    "divided_steps",
    "turns",
    "predictions",
    "searches",
    "trainer",
    "reading_in_turn",
    "repeated_writes",
    "call_settings",
    "batch_parts",
    "value_reads",
    "output_gathering",
    "recomputed_calls",
    "check_times",
    "divided_calls",
    "divided_models",
    "read_outputs",
    "sent_rows",
    "read_rows",
    "divided_loading",
    "trained_models",
    "lightning_strategy",
    "unsloth_sharding",
    "same_data",
    "ranks_trainer",
    "shards",
)

_DOCSTRING = """\
What a training script that nb2ddp generated needs on several GPUs: one process (rank) per GPU, started by torchrun.

The script imports this module as ``ddp`` and needs nothing else of nb2ddp, whose licence is Apache-2.0. It holds the
parts that this script uses. Under plain ``python`` every function does what the notebook did, and waits for nothing.

- Each rank runs the whole script. A Trainer's steps are divided (`wrap_trainer`), the calls of a
  loop's model by rows (`parallelize`); gradients are put together, so that the ranks' models stay equal.
- Before the process group exists, and for whatever may take longer than a collective may, ranks meet through
  torchrun's key-value store: `main_process_only`, `main_process_first`, `from_main_process` and the like. All
  ranks pass the same meetings in the same order; an exception that rank 0 raises in one is raised on all ranks.
- A watchdog thread in each rank reports where the rank stands, and whether it goes on. A slow rank is waited for,
  and a line says so; where one hangs, the watchdog ends the run with a sentence that names the rank and the place.

Environment variables:

NB2DDP_SHARED_FS=0  several machines, each with a disk of its own: local rank 0 of each writes its files
NB2DDP_PATIENCE     seconds without a sign of life (default 45); 40 times as many for one that computes or sleeps
NB2DDP_CHECKS       how many of the first 300 steps are compared with one process, or "off" (default 5)
NB2DDP_STRICT=1     end with exit code 1 where such a comparison fails

What a script calls, by the part of this file:

@functions@
"""
_HEADER = re.compile(
    r'"""(?P<docstring>.*?)"""\n(?P<imports>(?:(?:import |from |if TYPE_CHECKING:|    |\))[^\n]*\n|\n)*)',
    re.DOTALL,
)
# A name that a part defines for scripts.
PUBLIC = re.compile(r'^(?:def |class |(?=\w+(?:: \w+)? = )|    if name == "(?=has_))([a-z]\w*)', re.MULTILINE)
_IMPORTS = re.compile(r"^[ \t]*(?:import|from) .+", re.MULTILINE)
# Parts that come along for what a script with a Trainer, or a loop, says, though no line calls them.
_OF_TRAINERS = {
    "predictions": re.compile(r"eval_|evaluat|predict|compute_metrics"),
    "searches": re.compile("hyperparameter_search"),
    "gathered_rows": re.compile(r"sentence_transformers|SentenceTransformer"),
    # micro-batches whose rows are divided: where two or four ranks do not have as many in each step
    "dropout_rows": re.compile(
        r"\A(?!.*gradient_accumulation_steps['\"]?\s*[=:]\s*(?:[48]|\d*(?:[02468][048]|[13579][26]))\b)",
        re.DOTALL,
    ),
}
# rows that do more than look something up
_OF_LOOPS = {
    "divided_loading": re.compile(
        r"\A(?=.*[Ll]oader).*(?:num_workers|__getitem__|\btransforms?\b|Image)", re.DOTALL
    ),
}
# What writes its files once, or nothing: of what other packages make, the run looks whether every rank writes.
_KNOWN = sys.stdlib_module_names | frozenset(
    "accelerate bitsandbytes datasets ddp_support evaluate huggingface_hub IPython matplotlib mlflow numpy pandas peft "
    "PIL safetensors scipy seaborn sentence_transformers sklearn tensorboard tensorboardX tokenizers torch torchaudio "
    "torchvision tqdm transformers trl unsloth unsloth_zoo wandb".split()
)
_LINE_LENGTH = 110


@functools.cache
def support_module(used: frozenset[str] | None = None) -> str:
    """Return the text of `ddp_support.py`, which is written beside the script or into it.

    ``used``: the names that the script takes from it, and parts by name. Only these parts, those that define the names,
    and what they import are in the text; all parts where nothing is said.
    """
    headers, functions, bodies = "", [], []
    for name in PARTS if used is None else _needed(used):
        docstring, header, body = _read(name)
        headers += header
        about = textwrap.indent(docstring, "# ", lambda line: True).replace("# \n", "#\n")
        gap = "\n\n" if body.startswith(("def ", "class ", "@")) else "\n"
        bodies.append(f"{f'# ---- {name} '.ljust(_LINE_LENGTH, '-')}\n{about}\n{gap}{body}\n")
        if public := PUBLIC.findall(body):
            functions.append(_entry(name, public))
    docstring = _DOCSTRING.replace("@functions@", "\n".join(functions))
    return f'"""{docstring}"""\n\n{_import_lines(headers)}\n' + "\n\n".join(bodies)


def used_names(code: str, module: str, folder: Path | None = None) -> frozenset[str]:
    """Return the names that a script's code takes from the runtime module, which it knows as ``module``.

    Parts that no line of a script calls are named themselves. ``folder``: where the notebook is; what its modules do,
    is out of the conversion's sight, and the run looks whether they write.
    """
    found = set(re.findall(rf"\b{re.escape(module)}\.([a-z]\w*)", code))
    if found & {"wrap_trainer", "prepare_trainer"}:
        found |= {part for part, said in _OF_TRAINERS.items() if said.search(code)}
        wholes = (line.partition("import ")[2] for line in _IMPORTS.findall(code) if "from " not in line)
        packages = {
            *re.findall(r"(?m)^[ \t]*from (\w+)", code),
            *re.findall(r"(?:^|, *)(\w+)", ",".join(wholes)),
        }
        beside = [folder / package for package in packages] if folder else []
        own = any(path.with_suffix(".py").is_file() or any(path.glob("*.py")) for path in beside)
        if own or packages - _KNOWN:
            found.add("repeated_writes")
    if found & {"parallelize", "parallelize_trained"}:
        found |= {part for part, said in _OF_LOOPS.items() if said.search(code)}
    if found & {"wrap_trainer", "prepare_trainer", "parallelize", "parallelize_trained"} and _keeps_files(
        code
    ):
        found.add("reading_in_turn")
    return frozenset({*found, "init"} if "init_ranks" not in found else found)


def _keeps_files(code: str) -> bool:
    """Return whether a data set of the script's saves what it has computed, and looks whether it has: a class does."""
    try:
        classes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ClassDef)]
    except SyntaxError:  # of a newer Python
        return False
    for of in classes:
        methods = {each.name: ast.unparse(each) for each in of.body if isinstance(each, ast.FunctionDef)}
        text = "".join(body for name, body in methods.items() if name != "__init__")
        looks, saves = (
            re.search(words, text) for words in (r"exists\(|is_?file\(|NotFound", r"\bsave\w*\(|dump\(")
        )
        if "__getitem__" in methods and looks and saves:
            return True
    return False


def _needed(used: frozenset[str]) -> list[str]:
    """Return the parts that define names, with all parts that these import, in the order of `PARTS`."""
    waiting = [part for part in PARTS if used & {part, *PUBLIC.findall(_read(part)[2])}]
    found: set[str] = set()
    while waiting:
        part = waiting.pop()
        if part not in found:
            found.add(part)
            waiting += re.findall(r"^from nb2ddp\.runtime\.(\w+) import", _read(part)[1], re.MULTILINE)
    return [part for part in PARTS if part in found]


@functools.cache
def _read(part: str) -> tuple[str, str, str]:
    """Return a part's docstring, the lines with which it imports, and its code."""
    text = (Path(__file__).parent / f"{part}.py").read_text(encoding="utf-8")
    header = _HEADER.match(text)
    assert header is not None, f"{part}.py begins with a docstring and its imports"
    return header["docstring"].strip(), header["imports"], text[header.end() :].strip("\n")


def _import_lines(headers: str) -> str:
    """Return what parts import of Python and PyTorch, in ruff's order: Python's first, a module's names on a line."""
    whole, names = set[str](), collections.defaultdict[str, set[str]](set)
    for node in ast.walk(ast.parse(headers)):
        if isinstance(node, ast.Import):
            whole.add(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom) and not (module := str(node.module)).startswith("nb2ddp."):
            names[module] |= {ast.unparse(alias) for alias in node.names if alias.name != "TYPE_CHECKING"}
    sections: dict[bool, list[str]] = {True: [], False: []}
    for line in sorted(whole):
        sections[_is_pythons(line.split()[1])].append(line)
    for module in sorted(names):
        sections[_is_pythons(module)] += _from_import(module, names[module])
    return "\n\n".join("\n".join(lines) for lines in sections.values()) + "\n"


def _is_pythons(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _from_import(module: str, names: set[str]) -> list[str]:
    """Return the lines of one ``from ... import ...``; constants come first, then classes, then functions."""
    renamed = sorted(name for name in names if " as " in name)
    plain = sorted(names - {*renamed}, key=lambda name: (not name.isupper(), name[0].islower(), name))
    lines = [f"from {module} import {', '.join(plain)}"] if plain else []
    if lines and len(lines[0]) > _LINE_LENGTH:
        lines = [f"from {module} import (", *(f"    {name}," for name in plain), ")"]
    return lines + [f"from {module} import {name}" for name in renamed]


def _entry(part: str, public: Iterable[str]) -> str:
    """Return the lines of the docstring that name a part's functions."""
    label = f"{part:<18}  "
    return textwrap.fill(", ".join(public), 108, initial_indent=label, subsequent_indent=" " * len(label))
