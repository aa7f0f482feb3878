"""Watches a run from inside, without a change to the script: put this folder on PYTHONPATH.

With NB2DDP_WATCH=FOLDER each Python process of the run notes there, by rank: every file that it opens for
writing (an audit hook), its trained parameters and losses when it leaves the process group or ends, and what
its Trainers have evaluated. Nothing of the script is replaced; Trainers get one more callback, and their
rounding of reported losses is switched off, because a test compares them.

NB2DDP_WITHOUT names packages that the processes find not installed.
"""

import atexit
import importlib.abc
import importlib.machinery
import json
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

FOLDER = os.environ.get("NB2DDP_WATCH", "")
RANK = os.environ.get("RANK", "single")
_dumped = False
_logged: list[dict[str, Any]] = []  # what the Trainers of the run log, one after another
_trained: list[Any] = []  # the last model that a Trainer has trained


def _note(name: str, text: str) -> None:
    file = os.open(os.path.join(FOLDER, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, text.encode())
    os.close(file)


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "open" or not isinstance(arguments[0], str):
        return
    path, mode, flags = arguments
    writes = (
        any(letter in mode for letter in "wax+")
        if isinstance(mode, str)
        else flags & (os.O_WRONLY | os.O_RDWR)
    )
    is_pythons_own = f"{os.sep}__pycache__{os.sep}" in path
    if writes and not is_pythons_own and not path.startswith((FOLDER, "/dev/", "/proc/")):
        _note(f"writes-{RANK}.txt", f"{os.path.abspath(path)}\n")


def dump() -> None:
    """Note what the script holds now: its trained parameters, its losses and what it has evaluated."""
    global _dumped
    main = sys.modules["__main__"]
    torch = sys.modules.get("torch")
    model = getattr(main, "model", None)
    if torch is None or _dumped:
        return
    if not isinstance(model, torch.nn.Module):
        model = _trained[-1] if _trained else None
    if model is None:
        return
    _dumped = True
    parameters = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    torch.save(parameters, os.path.join(FOLDER, f"parameters-{RANK}.pt"))
    held = getattr(main, "losses", None)
    losses = held if isinstance(held, list) and held else [row["loss"] for row in _logged if "loss" in row]
    _note(f"losses-{RANK}.json", json.dumps([float(loss) for loss in losses]))
    evaluated = [
        {key: value for key, value in row.items() if not key.endswith(("_runtime", "_second", "_time"))}
        for row in _logged
        if "eval_loss" in row
    ]
    _note(f"evaluated-{RANK}.json", json.dumps(evaluated))


def _leaving_the_group(module: Any) -> None:
    destroy = module.destroy_process_group

    def destroy_process_group(*arguments: Any, **options: Any) -> Any:
        dump()
        return destroy(*arguments, **options)

    module.destroy_process_group = destroy_process_group


def _watched(module: Any) -> None:
    class Watch(module.TrainerCallback):  # type: ignore[misc]
        def on_log(self, arguments: Any, state: Any, control: Any, logs: Any = None, **others: Any) -> None:
            _logged.append(dict(logs or {}))

        def on_train_begin(
            self, arguments: Any, state: Any, control: Any, model: Any = None, **others: Any
        ) -> None:
            _trained[:] = [model]

    module.DEFAULT_CALLBACKS.append(Watch)
    module.round = lambda number, digits=None: number


PATCHES = {"torch.distributed.distributed_c10d": _leaving_the_group, "transformers.trainer": _watched}


class _Finder(importlib.abc.MetaPathFinder):
    """Lets a module load as always, then patches it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            loader: Any = spec.loader
            load = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                PATCHES[name](module)

            loader.exec_module = exec_module
        return spec


if FOLDER:
    sys.addaudithook(_audit)
    sys.meta_path.insert(0, _Finder())
    atexit.register(dump)
for _name in os.environ.get("NB2DDP_WITHOUT", "").split():
    sys.modules[_name] = None  # type: ignore[assignment]  # as if it were not installed
