"""Let a Trainer search hyperparameters alike on all ranks."""

import functools
import os
import sys
from typing import Any

from nb2ddp.runtime.object_collectives import from_main_process
from nb2ddp.runtime.run_state import _run, is_main_process


def _search_alike(trainer: Any, whole: bool = False) -> None:
    """Give a search whose sampler the notebook has not seeded rank 0's seed; where trials are stored, rank 0 stores."""
    search = trainer.hyperparameter_search

    @functools.wraps(search)
    def search_alike(*args: Any, **options: Any) -> Any:
        if _run.meets and "sampler" not in options and "optuna" in sys.modules:
            seed = from_main_process(lambda: int.from_bytes(os.urandom(4), "little") // 2)
            options["sampler"] = sys.modules["optuna"].samplers.TPESampler(seed=seed)
        if not is_main_process:
            options.pop("storage", None)
        return search(*args, **options)

    trainer.hyperparameter_search = search_alike


_run.at_wrap.append(_search_alike)
