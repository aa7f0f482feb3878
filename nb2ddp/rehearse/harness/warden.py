"""Start one rank with the harness inside, and note how it ended: ``python warden.py FOLDER COMMAND...``.

torchrun starts it in place of the script, so that torchrun itself runs without the harness. Each rank's
output goes to files of its own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

_HARNESS = Path(__file__).resolve().parent


def main(folder: Path, command: list[str]) -> int:
    """Run the command; returns its exit code as a shell would."""
    sys.path.append(str(_HARNESS.parents[2]))  # last: it may be site-packages
    from nb2ddp.launch.processes import end_with_parent

    rank = os.environ.get("RANK", "0")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, lambda *_: None)  # torchrun sends it to the script too, which is to act on it
    path = os.pathsep.join([str(_HARNESS / "pythonpath"), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "NB2DDP_REHEARSAL": str(folder),
        "NB2DDP_REHEARSAL_RANK": rank,
    }
    with (folder / f"rank{rank}.out").open("wb") as out, (folder / f"rank{rank}.err").open("wb") as err:
        process = subprocess.Popen(
            command, env=environment, stdout=out, stderr=err, preexec_fn=end_with_parent(signal.SIGKILL)
        )
        code = process.wait()
    ended = {"code": code, "time": time.time()}
    (folder / f"exit-{rank}.json").write_text(json.dumps(ended), encoding="utf-8")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
