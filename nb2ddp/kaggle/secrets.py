"""Find tokens that somebody has left in a notebook, before they leave the machine."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nb2ddp.errors import SecretError

_KINDS = {
    "Hugging Face token": r"\b(?:hf|api_org)_[A-Za-z0-9]{30,}",
    "Kaggle token": r"\bKGAT_[0-9A-Za-z]{24,}",
    "Kaggle key": r"(?i:kaggle_key|\\?\"key\\?\")\W{1,8}[0-9a-f]{32}\b",
    "GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})",
    "Weights & Biases key": r"\bwandb_v\d_[A-Za-z0-9_]{20,}|(?i:wandb)[^\n]{0,80}?\b[0-9a-f]{40}\b",
    "Anthropic key": r"\bsk-ant-[A-Za-z0-9_-]{20,}",
    "OpenAI key": r"\bsk-(?!ant-)(?:proj-|svcacct-|admin-|or-v1-)?[A-Za-z0-9_-]{20,}",
    "Google API key": r"\bAIza[0-9A-Za-z_-]{35}",
    "AWS key": r"\bAKIA[0-9A-Z]{16}\b",
    "GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "Slack token": r"\bxox[abprs]-[A-Za-z0-9-]{10,}",
    "private key": r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----",
}
_SECRET = re.compile("|".join(f"(?P<kind{n}>{pattern})" for n, pattern in enumerate(_KINDS.values())))
_ENOUGH_CHARACTERS = 8  # different ones; a placeholder like hf_xxxxxxxx has fewer


def secrets_in(text: str) -> Iterator[tuple[int, str]]:
    """Each token's line, counted from 1, and its kind with the value masked."""
    for match in _SECRET.finditer(text):
        if len(set(re.split(r"[\W_]", match[0], maxsplit=1)[-1])) >= _ENOUGH_CHARACTERS:
            kind = list(_KINDS)[int((match.lastgroup or "kind0").removeprefix("kind"))]
            yield text.count("\n", 0, match.start()) + 1, f"{kind} ({_masked(match[0])})"


def _masked(value: str) -> str:
    start = re.match(r"[A-Za-z]+[_-]", value)
    return f"{start[0] if start else value[:2]}…"


def secrets_in_notebook(path: Path) -> Iterator[tuple[str, str]]:
    """The place and the kind of each token in the cells and in the outputs they show.

    The raw JSON is read: `nb2ddp.source.notebook` drops outputs, which play no part in a conversion.
    """
    try:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells = notebook.get("cells") or [c for sheet in notebook["worksheets"] for c in sheet["cells"]]
        parts = list(_parts(cells))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return  # what cannot be read has not been converted
    for place, text in parts:
        for line, kind in secrets_in(text):
            yield f"{path}: {place}, line {line}", kind


def _parts(cells: list[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    number = 0
    for cell in cells:
        is_code = cell["cell_type"] == "code"
        number += is_code
        place = f"cell {number}" if is_code else f"the text after cell {number}"
        yield place, _joined(cell.get("source", cell.get("input", "")))
        for text in _texts(cell.get("outputs", [])):
            yield f"the output of cell {number}", text


def _texts(value: Any) -> Iterator[str]:
    """All texts in an output, however deep; a list of texts is one text in lines."""
    if isinstance(value, str) or (isinstance(value, list) and value and isinstance(value[0], str)):
        yield _joined(value)
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def _joined(source: Any) -> str:
    return source if isinstance(source, str) else "".join(map(str, source))


def refuse_secrets(found: list[tuple[str, str]]) -> None:
    """Raises SecretError, naming every place, when there are any."""
    if not found:
        return
    places = "\n".join(f"  {place}: {kind}" for place, kind in dict.fromkeys(found))
    raise SecretError(
        f"nothing was sent, because a token stands in what you would share:\n{places}\n"
        "Take it out (outputs too) and revoke it. On Kaggle, put it into a private dataset as a file with "
        "the name of its variable (such as HF_TOKEN) and attach that with --token-dataset OWNER/SLUG."
    )
