"""What a run has written: files, the last checkpoint, and the model with the line that loads it."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from nb2ddp.regular_files import json_object

_SEARCH_SECONDS = 3.0  # for files that a run has written, in a folder of any size
_CACHES = {"__pycache__", "unsloth_compiled_cache", "huggingface_tokenizers_cache"}
_LOADER = re.compile(r"\b(Fast\w+)\.from_pretrained\(")
# peft's class for each task type in an adapter's configuration
_AUTO_PEFT = {
    "CAUSAL_LM": "AutoPeftModelForCausalLM",
    "SEQ_2_SEQ_LM": "AutoPeftModelForSeq2SeqLM",
    "SEQ_CLS": "AutoPeftModelForSequenceClassification",
    "TOKEN_CLS": "AutoPeftModelForTokenClassification",
    "QUESTION_ANS": "AutoPeftModelForQuestionAnswering",
    "FEATURE_EXTRACTION": "AutoPeftModelForFeatureExtraction",
}


def files_written(folder: Path, since: float, *, without: Collection[Path] = ()) -> list[Path]:
    """Return files below ``folder`` that changed after ``since`` (seconds since the epoch), without caches and
    without these files and folders.

    Relative to ``folder`` when that is the current one. Returns what it finds in 3 seconds.
    """
    deadline = time.monotonic() + _SEARCH_SECONDS
    found = []
    for root, folders, names in os.walk(folder):
        shown = (name for name in folders if not name.startswith(".") and name not in _CACHES)
        folders[:] = [name for name in shown if Path(root, name) not in without]
        for path in (Path(root, name) for name in names):
            with contextlib.suppress(OSError):
                if path not in without and path.stat().st_mtime >= since:
                    found.append(path)
        if time.monotonic() > deadline:
            break
    here = Path.cwd()
    return sorted(path.relative_to(here) if path.is_relative_to(here) else path for path in found)


@dataclass(frozen=True)
class Outputs:
    """The files that a run has written, and the text of its script."""

    output_files: Sequence[Path]
    script: str = ""

    @property
    def adapter(self) -> Path | None:
        """The folder with the adapter (or else the whole model) that was saved last, checkpoints aside."""
        # modules.json is Sentence Transformers', which have one of each other below it
        for name in ("modules.json", "adapter_config.json", "config.json"):
            if found := [file for file in self.output_files if file.name == name and file.exists()]:
                return max(
                    found, key=lambda f: (not f.parent.name.startswith("checkpoint-"), f.stat().st_mtime)
                ).parent
        return None

    @property
    def checkpoint(self) -> Path | None:
        """The last checkpoint of a Trainer."""
        states = [f for f in self.output_files if f.name == "trainer_state.json" and f.exists()]
        return max(states, key=lambda file: file.stat().st_mtime).parent if states else None

    @property
    def how_to_load(self) -> str:
        """One line that loads what was trained; empty when nothing was saved, or what only the notebook can load."""
        folder = self.adapter
        if folder is None:
            return ""
        if match := _LOADER.search(self.script):
            name = match[1]
            return f"from unsloth import {name}; model, tokenizer = {name}.from_pretrained({quoted(folder)})"
        if (folder / "modules.json").exists():
            name = "SentenceTransformer"
            return f"from sentence_transformers import {name}; model = {name}({quoted(folder)})"
        if (folder / "adapter_config.json").exists():
            task = json_object(folder / "adapter_config.json").get("task_type")
            name = _AUTO_PEFT.get(task if isinstance(task, str) else "", "AutoPeftModel")
            return f"from peft import {name}; model = {name}.from_pretrained({quoted(folder)})"
        name = _class_of(folder / "config.json")
        line = f"from transformers import {name}; model = {name}.from_pretrained({quoted(folder)})"
        return line if name else ""

    @property
    def folders(self) -> list[tuple[Path, int]]:
        """The uppermost folders that hold what was written, and single files; with the number of files."""
        counts: dict[Path, int] = {}
        for file in self.output_files:
            parents = [parent for parent in file.parents if parent.name]
            top = file.parent if file.is_absolute() else parents[-1] if parents else file
            counts[top] = counts.get(top, 0) + 1
        return sorted(counts.items())


def _class_of(configuration: Path) -> str:
    """Return the class of Transformers that loads a whole model; "" for a class of the notebook's own."""
    found = json_object(configuration)
    match found.get("architectures"), found.get("auto_map"):
        case [str(name), *_], None if name.isidentifier():
            return name if _is_of_transformers(name) else ""
        case _, dict(classes):
            return next((name for name in classes if str(name).startswith("AutoModelFor")), "AutoModel")
    return "AutoModel"


def _is_of_transformers(name: str) -> bool:
    """Return whether Transformers lists a class, without importing it; True where it is not installed here."""
    spec = find_spec("transformers")
    listed = Path(spec.origin or "").with_name("models") / "auto" / "modeling_auto.py" if spec else Path()
    return not listed.is_file() or f'"{name}"' in listed.read_text(encoding="utf-8")


def quoted(path: Path) -> str:
    """Return a path as a Python string: in double quotes, unless something in it needs an escape."""
    text = str(path)
    return f'"{text}"' if text.isprintable() and not {'"', "\\"} & set(text) else repr(text)
