"""Watches a run from inside, without a change to the script: put this folder on PYTHONPATH.

With NB2DDP_WATCH=FOLDER each Python process of the run notes there, by rank: every file that it opens for
writing (an audit hook), its trained parameters and losses when it leaves the process group or ends, and the
sample indices that its training loader drew. Nothing of the script is replaced; Trainer's rounding of
reported losses is switched off, because a test compares them.
"""

import atexit
import importlib.abc
import importlib.machinery
import json
import os
import sys

FOLDER = os.environ.get("NB2DDP_WATCH")
RANK = os.environ.get("RANK", "single")


def _note(name, text):
    file = os.open(os.path.join(FOLDER, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, text.encode())
    os.close(file)


def _audit(event, arguments):
    if event != "open" or not isinstance(arguments[0], str):
        return
    path, mode, flags = arguments
    writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else flags & (os.O_WRONLY | os.O_RDWR)
    if writes and not path.startswith((FOLDER, "/dev/", "/proc/")):
        _note(f"writes-{RANK}.txt", f"{os.path.abspath(path)}\n")


def dump():
    """Note what the script holds now: its trained parameters and its losses."""
    main = sys.modules["__main__"]
    torch = sys.modules.get("torch")
    model = getattr(main, "model", None)
    if torch is None or not isinstance(model, torch.nn.Module) or hasattr(dump, "done"):
        return
    dump.done = True
    parameters = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    torch.save(parameters, os.path.join(FOLDER, f"parameters-{RANK}.pt"))
    trainer = getattr(main, "trainer", None)
    losses = getattr(main, "losses", None)
    if trainer is not None:
        losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    if losses is not None:
        _note(f"losses-{RANK}.json", json.dumps([float(loss) for loss in losses]))


def _leaving_the_group(module):
    destroy = module.destroy_process_group

    def destroy_process_group(*arguments, **options):
        dump()
        return destroy(*arguments, **options)

    module.destroy_process_group = destroy_process_group


def _unrounded(module):
    module.round = lambda number, digits=None: number


PATCHES = {"torch.distributed.distributed_c10d": _leaving_the_group, "transformers.trainer": _unrounded}


class _Finder(importlib.abc.MetaPathFinder):
    """Lets a module load as always, then patches it."""

    def find_spec(self, name, path=None, target=None):
        if name not in PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                PATCHES[name](module)

            spec.loader.exec_module = exec_module
        return spec


if FOLDER:
    sys.addaudithook(_audit)
    sys.meta_path.insert(0, _Finder())
    atexit.register(dump)
