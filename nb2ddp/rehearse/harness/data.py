"""First rows in place of whole data sets, synthetic ones where there is nothing to read."""

from __future__ import annotations

import inspect
import os
import random
from collections.abc import Callable
from typing import Any

from nb2ddp.rehearse.harness import hub
from nb2ddp.rehearse.harness.imports import Patch, patched
from nb2ddp.rehearse.harness.notes import PLAN, replaced

_WORDS = (
    "the a small large red old new house river city teacher answer question number story music garden winter "
    "light water road garden speaks writes counts builds finds gives shows because while after under near "
    "quickly slowly seven twelve first second python table column model value reason example letter market"
).split()
_TURNS = frozenset({"conversations", "conversation", "messages", "dialog", "dialogue", "turns", "chat"})
_NUMBERS = frozenset("score rating id idx index length year stars difficulty num_turns n count age".split())
_PARTS = frozenset("role content from value type text_content".split())  # of a turn, not of a row
_FILES = {
    ".json": "json",
    ".jsonl": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".txt": "text",
}
_MEDIA = frozenset({"image", "images", "audio", "video", "videos"})
_SPLITS = ("train", "test", "validation")
_SHORT = "a rehearsal is short"


def sentence(rng: random.Random, low: int = 6, high: int = 30) -> str:
    """Return random words."""
    return " ".join(rng.choices(_WORDS, k=rng.randint(low, high)))


def _load_dataset(original: Callable[..., Any], path: str, *others: Any, **options: Any) -> Any:
    asked = inspect.signature(original).bind(path, *others, **options).arguments
    split, streaming, files = asked.get("split"), bool(asked.get("streaming")), asked.get("data_files")
    name = files if isinstance(files, str) and path in _FILES.values() else path
    given = PLAN["data"].get(path) or (PLAN["data"].get(files) if isinstance(files, str) else None)
    if given:
        kind = _FILES.get(os.path.splitext(given)[1].lower(), "text")
        rows = _first(original(kind, data_files=given, split="train"))
        replaced(f"the data set {name}", f"the first rows of {given}")
        return _streamed(_as_splits(rows, split), streaming)
    if os.path.exists(path) or (path in _FILES.values() and _is_here(files)):
        found = original(path, *others, **options)
        return found if streaming else _first(found, path)
    try:
        home = os.environ.get("HF_HOME", os.path.expanduser("~/.cache/huggingface"))
        cache = os.path.join(home, "datasets")  # the user's
        found = original(path, *others, **{**options, "streaming": False}, cache_dir=cache)
        return _streamed(_in_memory(_first(found, path)), streaming)
    except Exception as error:  # not in the cache
        why = f"it is not on this machine ({type(error).__name__})"
    try:
        rows = hub.first_rows({key: asked[key] for key in hub.KEYS & asked.keys()}, PLAN["rows"])
    except hub.Unavailable as error:
        why = f"it is not on this machine, and {error}"
    else:
        replaced(f"the data set {name}", f"its first {PLAN['rows']} rows", _SHORT)
        return _streamed(_of_splits(_in_memory(rows), split), streaming)
    return _streamed(_as_splits(_synthetic(name, why), split), streaming)


def _is_here(files: Any) -> bool:
    paths = files.values() if isinstance(files, dict) else files if isinstance(files, list) else [files]
    return all(isinstance(path, str) and not path.startswith(("http", "hf:", "s3:")) for path in paths)


def _each(found: Any, change: Callable[[Any], Any]) -> Any:
    """Return what ``change`` makes of a data set, of each in a list, or of each split."""
    if isinstance(found, dict):
        return type(found)({split: change(rows) for split, rows in found.items()})
    return [change(rows) for rows in found] if isinstance(found, list) else change(found)


def _first(found: Any, name: str = "") -> Any:
    """Return the first rows, as many as a rehearsal takes."""

    def first(rows: Any) -> Any:
        if len(rows) <= PLAN["rows"]:
            return rows
        if name:
            replaced(f"the {len(rows)} rows of {name}", f"the first {PLAN['rows']}", _SHORT)
        return rows.select(range(PLAN["rows"]))

    return _each(found, first)


def _in_memory(found: Any) -> Any:
    """Return the same rows in memory: `map` writes its cache beside a data set's files."""
    return _each(
        found,
        lambda rows: type(rows)(rows.with_format("arrow")[:], info=rows.info, split=rows.split),
    )


def _streamed(found: Any, streaming: bool) -> Any:
    import datasets

    if not streaming:
        return found
    streams = _each(found, lambda rows: rows.to_iterable_dataset())
    return datasets.IterableDatasetDict(streams) if isinstance(found, dict) else streams


def _as_splits(rows: Any, split: Any) -> Any:
    """Return what load_dataset returns for this ``split`` when every split is these rows."""
    import datasets

    if split is None:
        return datasets.DatasetDict(dict.fromkeys(_SPLITS, rows))
    return [rows for _ in split] if isinstance(split, list | tuple) else rows


def _of_splits(rows: Any, split: Any) -> Any:
    """Return a split, or a slice of one, of the first rows; "train[:10%]" is a tenth of those."""
    import datasets

    if split is None:
        return rows
    if isinstance(split, list | tuple):
        return [_of_splits(rows, one) for one in split]
    sizes = {name: len(part) for name, part in rows.items()}
    parts = []
    for piece in datasets.ReadInstruction.from_spec(hub.spec(split)).to_absolute(sizes):
        whole = rows[piece.splitname]
        # of rows that lie beyond the first ones, all first ones
        parts.append(whole.select(range(piece.from_, piece.to)) if piece.from_ < piece.to else whole)
    return parts[0] if len(parts) == 1 else datasets.concatenate_datasets(parts)


def _synthetic(name: str, why: str) -> Any:
    import datasets

    columns = [column for column in PLAN["columns"] if column not in _PARTS] or ["text"]
    if media := _MEDIA & set(columns):
        raise RuntimeError(
            f"{name} holds {' and '.join(sorted(media))}: give some rows of it with --data {name}=PATH"
        )
    rng = random.Random(0)
    rows = {column: [_value(rng, column) for _ in range(PLAN["rows"])] for column in columns}
    replaced(f"the data set {name}", f"{PLAN['rows']} synthetic rows of {', '.join(columns)}", why)
    return datasets.Dataset.from_dict(rows)


def _value(rng: random.Random, column: str) -> Any:
    role, content = ("from", "value") if {"from", "value"} <= set(PLAN["columns"]) else ("role", "content")
    names = ("human", "gpt") if role == "from" else ("user", "assistant")
    turns = [{role: names[i % 2], content: sentence(rng)} for i in range(4)]
    if column in _TURNS:
        return turns
    if column in ("chosen", "rejected") and {"messages", "role", "content"} & set(PLAN["columns"]):
        return turns[:2]
    if column in ("label", "labels"):
        return rng.randrange(2)
    return rng.randrange(1, 6) if column.lower() in _NUMBERS else sentence(rng)


def _select(original: Callable[..., Any], self: Any, indices: Any, *others: Any, **options: Any) -> Any:
    """Select as many rows as there are where ``select(range(10000))`` asks for more."""
    if isinstance(indices, range) and len(indices) and max(indices) >= len(self):
        replaced(f"select({indices})", f"select({range(len(self))})", _SHORT)
        indices = range(len(self))
    return original(self, indices, *others, **options)


PATCHES: dict[str, Patch] = {
    "datasets.load": patched("load_dataset", _load_dataset),
    "datasets.arrow_dataset": patched("Dataset.select", _select),
}
