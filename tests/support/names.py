"""Names that a piece of Python uses and does not bind, as ruff finds them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path


def undefined_names(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Return the undefined names by source, for those that have any; one call of ruff for all."""
    with tempfile.TemporaryDirectory() as folder:
        for number, text in enumerate(sources.values()):
            (Path(folder) / f"{number}.py").write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--select", "F821"]
        done = subprocess.run([*command, "--output-format", "json", folder], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    labels = list(sources)
    found: dict[str, set[str]] = {}
    for entry in json.loads(done.stdout):
        match = re.fullmatch(r"Undefined name `(.+)`", entry["message"])
        assert match is not None, entry  # a source that ruff cannot parse, say
        found.setdefault(labels[int(Path(entry["filename"]).stem)], set()).add(match[1])
    return found
