"""What Unsloth accepts on a GPU and its CPU backend does not.

On a GPU Unsloth rewrites TRL's trainers, and then takes arguments that the installed TRL and Transformers
have renamed or dropped, and formatting functions that work on batches (``unsloth/trainer.py``,
``unsloth/models/rl_config_compat.py``, ``sft_prepare_dataset`` of ``unsloth_zoo/dataset_utils.py``). Its
CPU backend leaves TRL as it is, so that here such a notebook would fail for a reason that it does not have
there.
"""

from __future__ import annotations

import functools
import inspect
import os
import runpy
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nb2ddp.rehearse.harness.imports import Patch, around
from nb2ddp.rehearse.harness.notes import replaced

_KINDS = "sft dpo kto orpo cpo bco reward prm grpo rloo gkd".split()
_WHY = "Unsloth on a GPU does the same"


@functools.cache
def _rules() -> Any:
    """Return Unsloth's own list of what was renamed and dropped; None without it."""
    package = sys.modules.get("unsloth")
    path = Path(getattr(package, "__file__", None) or "none").with_name("models") / "rl_config_compat.py"
    # from its file: the package around it is for GPUs
    return types.SimpleNamespace(**runpy.run_path(str(path))) if path.is_file() else None


def _made_with(wrapper: Callable[..., Any], ending: str) -> Patch:
    """Return the patch that puts ``wrapper`` around ``__init__`` of a module's own classes of this name's ending."""

    def patch(module: Any) -> None:
        for name, owner in vars(module).items():
            if isinstance(owner, type) and owner.__module__ == module.__name__ and name.endswith(ending):
                around(owner, "__init__", wrapper)

    return patch


def _config(original: Callable[..., Any], self: Any, *others: Any, **options: Any) -> None:
    if "unsloth" in sys.modules and _rules() is not None:
        kept = _rules().filter_config_init_kwargs(type(self), options, notify=lambda said: None)
        for name in options.keys() - kept.keys():
            replaced(f"the argument {name}", "what this version has for it", _WHY)
        options = kept
        if "num_generations" in inspect.signature(original).parameters:
            _whole_groups(options)
    original(self, *others, **options)


def _whole_groups(options: dict[str, Any]) -> None:
    """Make a GRPO batch that does not hold whole groups of completions one group."""
    batch = options.get("per_device_train_batch_size") or 8
    steps = options.get("gradient_accumulation_steps") or 1
    group = options.get("num_generations") or 8
    ranks = int(os.environ.get("WORLD_SIZE", "1"))  # that TRL sees: a conversion of ours hides them
    chosen = options.get("steps_per_generation") or options.get("generation_batch_size")
    if not chosen and batch * steps * ranks % group:
        options["per_device_train_batch_size"] = group
        replaced(f"per_device_train_batch_size {batch}", f"num_generations, {group}", _WHY)


def _trainer(original: Callable[..., Any], self: Any, *others: Any, **options: Any) -> None:
    if "unsloth" in sys.modules:
        names = inspect.signature(original).parameters
        if "processing_class" in names and "tokenizer" not in names and "tokenizer" in options:
            options["processing_class"] = options.pop("tokenizer")
        config = options.get("args")
        if config is not None and _rules() is not None:
            for name in options.keys() - names.keys():
                _move(name, options, config)
        if options.get("formatting_func") and options.get("train_dataset") is not None:
            options["formatting_func"] = _of_one_row(options["formatting_func"], options["train_dataset"])
    original(self, *others, **options)


def _move(name: str, options: dict[str, Any], config: Any) -> None:
    """Move an argument that the trainer does not have to its configuration, or drop it."""
    verdict, detail = _rules().classify_config_kwarg(type(config), name)
    if verdict in ("accepted", "rename"):
        setattr(config, detail, options.pop(name))
        replaced(f"the trainer's argument {name}", f"{detail} of its configuration", _WHY)
    elif verdict == "retired":
        del options[name]
        replaced(f"the trainer's argument {name}", "nothing: this TRL has dropped it", _WHY)


def _of_one_row(function: Callable[..., Any], rows: Any) -> Callable[..., Any]:
    """Return a formatting function for one row: TRL takes no other, Unsloth also one for a batch."""
    row = next(iter(rows))
    try:
        texts = function({name: [value] for name, value in row.items()})
    except Exception:  # it wants one row
        return function
    if not isinstance(texts, list) or len(texts) != 1:
        return function

    def text_of(row: dict[str, Any]) -> Any:
        return function({name: [value] for name, value in row.items()})[0]

    return text_of


PATCHES: dict[str, Patch] = {
    f"{package}.{kind}_{ending.lower()}": _made_with(wrapper, ending)
    for kind in _KINDS
    for package in ("trl.trainer", f"trl.experimental.{kind}")  # older and newer versions of TRL
    for ending, wrapper in (("Config", _config), ("Trainer", _trainer))
}
