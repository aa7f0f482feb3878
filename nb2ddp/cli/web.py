"""``nb2ddp web``."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import time

import click

from nb2ddp.cli.common import echo, say, until_interrupted
from nb2ddp.waiting import waiting


@click.command()
@click.option(
    "--host", default="127.0.0.1", metavar="ADDRESS", help="Address to serve at.", show_default=True
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="N",
    help="Port to serve at.  [default: a free one from 7860 on]",
)
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser, as it is by default.")
def web(host: str, port: int | None, browser: bool) -> None:
    """Serve a page on which notebooks are converted: drop one or paste a link, and download the folder.

    Notebook and script are shown side by side, each change with its reason. Nothing of a notebook is executed,
    and nothing is kept on the disk; in memory, until its user leaves the page, for ten minutes at most. The page
    needs no network; it is served to this machine only, unless --host says otherwise. Needs the extra `web`:
    pip install "nb2ddp[web] @ git+https://github.com/nb2ddp/nb2ddp"

    \b
    Example:
      nb2ddp web
      nb2ddp web --port 8000 --no-browser
    """
    from nb2ddp.web.app import served

    stack = contextlib.ExitStack()
    if not _is_own(host):
        say(f"whoever reaches {host} can convert notebooks here; there is no password")
    with until_interrupted("the page is closed"), stack:
        with waiting("loading Gradio, which makes the page"):
            address = stack.enter_context(served(host, port, browser=browser))
        signal.signal(signal.SIGTERM, _ended)
        echo(f"The page is at {address} (Ctrl-C closes it)", err=True)
        while True:
            time.sleep(3600)


def _ended(number: int, frame: object) -> None:
    """Close the page as Ctrl-C does: the temporary folder goes."""
    raise SystemExit(128 + number)


def _is_own(host: str) -> bool:
    """Return whether an address belongs to this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
