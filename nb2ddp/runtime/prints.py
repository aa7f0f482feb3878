"""Notice what a call of a model prints, and what the notebook's own code logs in it."""

import contextlib
import io
import logging
import os
import sys
from collections.abc import Callable, Iterator


@contextlib.contextmanager
def _seeing_prints(warn: Callable[[str], None]) -> Iterator[None]:
    """Let a call print, and say that what it printed is of some rows."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    finally:
        sys.stdout.write(printed.getvalue())
    if printed.getvalue():
        warn(
            "the model has printed in forward() what it computed from the rows of rank 0 alone; remove the print, or "
            "let it print in the first call too: whole batches are computed then"
        )


@contextlib.contextmanager
def _logging_to(file: io.StringIO) -> Iterator[None]:
    """Write to a file what is logged meanwhile from the notebook's own code; leave out what libraries log."""
    handle, script = logging.Logger.handle, getattr(sys.modules["__main__"], "__file__", "")

    def write(_: logging.Logger, record: logging.LogRecord) -> None:
        if os.path.basename(record.pathname) == os.path.basename(script):
            file.write(f"{record.getMessage()}\n")

    logging.Logger.handle = write  # type: ignore[method-assign,assignment]
    try:
        yield
    finally:
        logging.Logger.handle = handle  # type: ignore[method-assign]
