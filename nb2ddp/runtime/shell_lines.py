"""Run the notebook's ``!`` lines, write its ``%%writefile`` cells once, on rank 0, and follow its ``%cd``."""

import contextlib
import os
import subprocess
import sys

from nb2ddp.runtime.object_collectives import from_main_process
from nb2ddp.runtime.rank_zero import main_process_only
from nb2ddp.runtime.run_state import _RANK_VARIABLES

_folders = [os.getcwd()]  # that `cd` was in


def cd(folder: str) -> None:
    """Change the folder where rank 0 can, for which the others wait; else print why and go on, as ``%cd`` does.

    ``-`` is the folder before.
    """
    path, done = _folders[-2:][0] if folder == "-" else os.path.expanduser(folder), list[str]()

    def change() -> None:
        os.chdir(path)
        done.append(path)

    try:
        from_main_process(change)
    except OSError as error:
        print(error)
        return
    if not done:
        change()
    if os.getcwd() != _folders[-1]:
        _folders.append(os.getcwd())


def shell(command: str) -> None:
    """Run a ``!`` line once, on rank 0; the others wait. Like the notebook, go on when it fails."""
    with main_process_only() as is_main:
        if is_main:
            sys.stdout.flush()
            env = environment_without_ranks()
            # where ranks take turns, each comes here
            from_main_process(lambda: subprocess.call(command, shell=True, executable="/bin/bash", env=env))


def shell_output(command: str) -> list[str]:
    """Run ``x = !command`` on rank 0; the others wait. Return its lines and its errors', as IPython does."""

    def run() -> list[str]:
        line, out, errors = ["/bin/bash", "-c", command], subprocess.PIPE, subprocess.STDOUT
        done = subprocess.run(line, text=True, stdout=out, stderr=errors, env=environment_without_ranks())
        return done.stdout.splitlines()

    lines: list[str] = from_main_process(run)
    with contextlib.suppress(ImportError):
        from IPython.utils.text import SList

        lines = SList(lines)
    return lines


def environment_without_ranks() -> dict[str, str]:
    """Return the environment for a process that is no rank of this run. Waits for no rank."""
    return {name: value for name, value in os.environ.items() if name not in _RANK_VARIABLES}


def write_file(path: str, text: str, mode: str = "w") -> None:
    """Write a file once, on rank 0; the others wait until it is there."""
    with main_process_only() as is_main:
        if is_main:
            with open(path, mode, encoding="utf-8") as file:
                file.write(text)
