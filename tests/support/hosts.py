"""Two hosts on this machine: network namespaces with a name and an address each, joined by a cable.

Needs root and Debian's iproute2. The names lead to the addresses in both (/etc/netns holds a hosts file for
each), so what is started there sees what it would see on two machines; the disk is the same.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.ranks import WITHOUT

NAMES = ("node1", "node2")


class Host:
    """One of the two. What it runs is watched by tests/support/harness in ``watch``."""

    def __init__(self, space: str, name: str, watch: Path) -> None:
        self.space, self.name, self.watch = space, name, watch

    def start(self, command: list[str], folder: Path, extra: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a command in ``folder``; its output goes to ``<folder's parent>/<name>.log``, appended."""
        environment = {
            **{k: v for k, v in os.environ.items() if not k.startswith("COV")},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "tests" / "support" / "harness"),
            "NB2DDP_WATCH": str(self.watch),
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(folder / "hf"),
            "OMP_NUM_THREADS": "1",
            **WITHOUT,
            **extra,
        }
        named = ["unshare", "--uts", "bash", "-c", f'hostname {self.name} && exec "$@"', "_"]
        with self.log(folder).open("ab") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.space, *named, *command],
                cwd=folder,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def log(self, folder: Path) -> Path:
        return folder.with_name(f"{folder.name}-{self.name}.log")

    def pull_the_plug(self) -> None:
        """End all its processes at once, as a power failure does."""
        found = subprocess.run(
            ["ip", "netns", "pids", self.space], capture_output=True, text=True, check=True
        )
        for pid in found.stdout.split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


@contextlib.contextmanager
def two_hosts(folder: Path) -> Iterator[tuple[Host, Host]]:
    """Both hosts; they and all that runs on them are gone afterwards."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("network namespaces need root and iproute2 (`make engines` installs it on Debian)")
    mark = uuid.uuid4().hex[:8]
    hosts = []
    try:
        for name in NAMES:
            watch = folder / f"watch-{name}"
            watch.mkdir(parents=True)
            host = Host(f"{name}-{mark}", name, watch)
            _ip("netns", "add", host.space)
            hosts.append(host)
            _ip("-n", host.space, "link", "set", "lo", "up")
            names = Path("/etc/netns") / host.space / "hosts"
            names.parent.mkdir(parents=True)
            names.write_text("127.0.0.1 localhost\n10.99.0.1 node1\n10.99.0.2 node2\n")
        first, second = hosts
        _ip(
            "link", "add", "eth0", "netns", first.space, "type", "veth", "peer", "eth0", "netns", second.space
        )
        for number, host in enumerate(hosts, start=1):
            _ip("-n", host.space, "addr", "add", f"10.99.0.{number}/24", "dev", "eth0")
            _ip("-n", host.space, "link", "set", "eth0", "up")
        yield first, second
    finally:
        for host in hosts:
            host.pull_the_plug()
            _ip("netns", "del", host.space)
            shutil.rmtree(Path("/etc/netns") / host.space, ignore_errors=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
