"""Let a Trainer search hyperparameters alike on all ranks."""

import contextlib
import os
import sys
from typing import Any

from nb2ddp.runtime.callbacks import _make_also
from nb2ddp.runtime.object_collectives import from_main_process
from nb2ddp.runtime.run_state import _run, is_main_process


class _SearchedAlike:
    """A Trainer whose search has rank 0's seed where the notebook gives no sampler. Rank 0 alone stores trials.

    Where it goes on with a stored study, other ranks go on with a copy of that in memory.
    """

    def hyperparameter_search(self, *args: Any, **options: Any) -> Any:
        optuna: Any = sys.modules.get("optuna")
        if _run.meets and optuna and "sampler" not in options:
            seed = from_main_process(lambda: int.from_bytes(os.urandom(4), "little") // 2)
            options["sampler"] = optuna.samplers.TPESampler(seed=seed)
        study = {name: options[name] for name in ("storage", "study_name") if options.get(name)}
        if _run.meets and optuna and len(study) == 2:
            stored = from_main_process(lambda: _stored(optuna, study))
            if not is_main_process:
                options["storage"] = study["storage"] = optuna.storages.InMemoryStorage()
                if stored is not None:
                    optuna.create_study(**study, directions=stored[0]).add_trials(stored[1])
        elif not is_main_process:
            options.pop("storage", None)
        return super().hyperparameter_search(*args, **options)  # type: ignore[misc]


def _stored(optuna: Any, study: dict[str, Any]) -> tuple[Any, Any] | None:
    """Return the directions and the trials of a study; None where there is none of its name."""
    with contextlib.suppress(KeyError):
        found = optuna.load_study(**study)
        return found.directions, found.trials
    return None


_run.at_wrap.append(lambda trainer, whole: _make_also(trainer, _SearchedAlike))
