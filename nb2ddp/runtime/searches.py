"""Let a Trainer search hyperparameters alike on all ranks."""

import os
import sys
from typing import Any

from nb2ddp.runtime.callbacks import _make_also
from nb2ddp.runtime.object_collectives import from_main_process
from nb2ddp.runtime.run_state import _run, is_main_process


class _SearchedAlike:
    """A Trainer whose search has rank 0's seed where the notebook gives no sampler. Rank 0 alone stores trials."""

    def hyperparameter_search(self, *args: Any, **options: Any) -> Any:
        if _run.meets and "sampler" not in options and "optuna" in sys.modules:
            seed = from_main_process(lambda: int.from_bytes(os.urandom(4), "little") // 2)
            options["sampler"] = sys.modules["optuna"].samplers.TPESampler(seed=seed)
        if not is_main_process:
            options.pop("storage", None)
        return super().hyperparameter_search(*args, **options)  # type: ignore[misc]


_run.at_wrap.append(lambda trainer, whole: _make_also(trainer, _SearchedAlike))
