"""The environment variables that a run gets from a live kernel."""

from __future__ import annotations

from collections.abc import Mapping

import psutil

# Set by ipykernel for the kernel's own output.
_KERNELS_OWN = ("MPLBACKEND", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE")


def ranks_environment(now: Mapping[str, str], initial: Mapping[str, str], *, session: bool) -> dict[str, str]:
    """Return the environment for a script, from the kernel's own ``now`` and when it started (``initial``).

    A session's script sets again what its cells have set; what libraries have set since (Unsloth keeps its
    state of the model there) is not for another process. Other scripts get what the user has set.
    """
    if session:
        return dict(initial)
    own = {name for name in {*now, *initial} if name in _KERNELS_OWN or name.startswith("UNSLOTH_")}
    environment = {name: value for name, value in now.items() if name not in own}
    return environment | {name: initial[name] for name in own if name in initial}


INITIAL_ENVIRONMENT: Mapping[str, str] = psutil.Process().environ()
"""The kernel's environment when it started."""
