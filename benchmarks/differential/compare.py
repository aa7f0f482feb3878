"""Compare two runs of one program: steps, parameters, prints, files and ends."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from differential.runs import Run

# values that the last line of a cell shows, and scripts do not
SHOWN = re.compile(
    r"<torch\._C\.Generator object|<All keys matched|TrainOutput\(|\(.final/|[\[(]'[\w./-]+/\w+_config\.json'"
)
RELATIVE = 2e-4  # of gradients and parameters, against their norm
NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?|\bnan\b|\binf\b")
TIMES = re.compile(
    r"""(['"]?(?:[a-z_]*runtime|[a-z_]*per_second|total_flos|[a-z_]*_time|time|elapsed)['"]?\s*[:=]\s*)['"]?[-\d.e+]+['"]?"""
    r"|\b\d+(?:\.\d+)?\s?(?:s|sec|secs|seconds|ms|min|minutes)\b|\d\d:\d\d:\d\d(?:[.,]\d+)?|0x[0-9a-f]{6,}"
)
IGNORED = re.compile(
    r"(^|/)(ddp_support\.py|train_ddp\.py|setup_env\.py|plain\.py|report\.json|__pycache__|training_args\.bin|"
    r"rng_state(_\d+)?\.pth|README\.md|hf|unsloth_compiled_cache.*|\.cache)(/|$)"
)


@dataclass(frozen=True)
class Difference:
    """One thing that is not as it was in the single process."""

    kind: str  # ranks | steps | gradient | parameters | lr | print | stdout | file | exit
    where: str
    what: str
    line: int = 0  # of the plain code, for prints


def close(one: float, other: float, relative: float, least: float = 1e-6) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    if math.isinf(one) or math.isinf(other):
        return one == other
    return abs(one - other) <= max(relative * max(abs(one), abs(other)), least)


def same_text(one: str, other: str, relative: float = 1e-4) -> bool:
    """Whether two texts are equal but for the rounding of their numbers, and times."""
    one, other = (TIMES.sub("T", text) for text in (one, other))
    if one == other:
        return True
    if NUMBER.sub("#", one).split() != NUMBER.sub("#", other).split():
        return False
    for left, right in zip(NUMBER.findall(one), NUMBER.findall(other), strict=True):
        if left == right:
            continue
        digits = max(len(text.partition("e")[0].partition(".")[2]) for text in (left, right))
        whole = "." not in left + right and "n" not in left + right
        unit = 0.0 if whole else 1.01 * 10.0**-digits if "e" not in left + right else 0.0
        if whole or not close(float(left), float(right), relative, max(unit, 2e-6)):
            return False
    return True


def between_ranks(run: Run) -> list[Difference]:
    """Return where the ranks of one run differ bit for bit, and what ranks above 0 print."""
    found = []
    first = run.ranks[0]
    for number, rank in enumerate(run.ranks[1:], 1):
        for step, (one, other) in enumerate(zip(first.steps, rank.steps, strict=False)):
            if one["digest"] != other["digest"]:
                found.append(
                    Difference("ranks", f"step {step}", f"rank {number} has other parameters than rank 0")
                )
                break
        if rank.lines:
            found.append(
                Difference(
                    "stdout", f"rank {number}", f"rank {number} prints {rank.lines[0]!r}", rank.printed[0][0]
                )
            )
    return found


def between_runs(single: Run, other: Run) -> list[Difference]:
    """Return what ``other`` did otherwise than the single process."""
    found = []
    one, rank = single.ranks[0], other.ranks[0]
    if bool(single.code) != bool(other.code):
        found.append(Difference("exit", "end", f"exit code {single.code} against {other.code}"))
    found += _steps(one.steps, rank.steps)
    found += between_prints(one.printed, rank.lines)
    found += _files(single.folder, other.folder)
    return found


def _steps(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> list[Difference]:
    found = []
    for kind in ("gradient", "parameters"):
        for step, (left, right) in enumerate(zip(one, other, strict=False)):
            norm = max(left[kind][0], right[kind][0], 1e-5)
            worst = max(abs(a - b) for a, b in zip(left[kind], right[kind], strict=True)) / norm
            if not worst <= RELATIVE and not (math.isnan(left[kind][0]) and math.isnan(right[kind][0])):
                what = f"{kind} are {worst:.1e} apart (norm {left[kind][0]:.5g} against {right[kind][0]:.5g})"
                found.append(Difference(kind, f"step {step}", what))
                break
    for step, (left, right) in enumerate(zip(one, other, strict=False)):
        if any(not close(a, b, 1e-4, 1e-12) for a, b in zip(left["lr"], right["lr"], strict=False)):
            found.append(Difference("lr", f"step {step}", f"{left['lr']} against {right['lr']}"))
            break
    if len(one) != len(other):
        found.append(Difference("steps", "count", f"{len(one)} steps against {len(other)}"))
    return found


def between_prints(printed: list[tuple[int, str]], lines: list[str]) -> list[Difference]:
    """Return the lines that differ from the single process's, each with the line of the script that printed it."""
    expected = [
        (line, text)
        for line, text in printed
        if text.strip() and not SHOWN.match(text) and not text.startswith("nb2ddp")
    ]
    lines = [text for text in lines if text.strip() and not SHOWN.match(text)]
    found, seen = [], set()
    for (line, text), other in zip(expected, lines, strict=False):
        if not same_text(text, other) and line not in seen:
            seen.add(line)
            found.append(Difference("print", text[:60], f"{text!r} against {other!r}", line))
    if len(expected) != len(lines):
        odd = [text for _, text in expected[len(lines) :]] or lines[len(expected) :]
        what = f"{len(expected)} lines against {len(lines)}: {odd[0]!r}"
        found.append(
            Difference("print", "count", what, expected[len(lines)][0] if len(expected) > len(lines) else 0)
        )
    return found


def _listing(folder: Path) -> set[str]:
    names = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    return {name for name in names if not IGNORED.search(name)}


def _files(one: Path, other: Path) -> list[Difference]:
    left, right = _listing(one), _listing(other)
    found = [Difference("file", name, "is missing") for name in sorted(left - right)]
    found += [
        Difference("file", name, "is there, and the single process has none") for name in sorted(right - left)
    ]
    for name in sorted(left & right):
        if (one / name).is_file() and (why := _contents(one / name, other / name)):
            found.append(Difference("file", name, why))
    return found


def _contents(one: Path, other: Path) -> str:
    if one.read_bytes() == other.read_bytes():
        return ""
    if one.suffix in (".pt", ".pth", ".bin", ".npy", ".safetensors", ".npz"):
        return _tensors(_load(one), _load(other))
    try:
        left, right = (file.read_text().splitlines() for file in (one, other))
    except UnicodeDecodeError:
        return ""
    if len(left) != len(right):
        return f"{len(left)} lines against {len(right)}"
    for a, b in zip(left, right, strict=True):
        if not same_text(a, b) and not re.search(
            r"local_rank|_device|world_size|train_batch_size|transformers_version", a
        ):
            return f"{a.strip()[:120]!r} against {b.strip()[:120]!r}"
    return ""


def _load(path: Path) -> Any:
    import numpy
    import torch

    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    if path.suffix in (".npy", ".npz"):
        read = numpy.load(path, allow_pickle=True)
        return dict(read) if path.suffix == ".npz" else read
    try:
        return torch.load(path, weights_only=False, map_location="cpu")
    except Exception as error:
        return f"unreadable: {type(error).__name__}"


def _tensors(one: Any, other: Any, at: str = "") -> str:
    import numpy
    import torch

    one, other = (
        torch.as_tensor(x) if isinstance(x, numpy.ndarray) and x.dtype != object else x for x in (one, other)
    )
    if type(one) is not type(other):
        return f"{at}: {type(one).__name__} against {type(other).__name__}"
    if isinstance(one, torch.Tensor):
        if one.shape != other.shape:
            return f"{at}: shape {tuple(one.shape)} against {tuple(other.shape)}"
        a, b = one.double(), other.double()
        if a.numel() and not torch.allclose(
            a, b, rtol=1e-3, atol=max(1e-5, 2e-4 * float(a.abs().max())), equal_nan=True
        ):
            return f"{at}: values up to {float((a - b).abs().max()):.1e} apart"
        return ""
    if isinstance(one, dict):
        if list(one) != list(other):
            return f"{at}: keys {list(one)[:4]} against {list(other)[:4]}"
        return next((why for key in one if (why := _tensors(one[key], other[key], f"{at}.{key}"))), "")
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return f"{at}: {len(one)} items against {len(other)}"
        pairs = enumerate(zip(one, other, strict=True))
        return next((why for i, (a, b) in pairs if (why := _tensors(a, b, f"{at}[{i}]"))), "")
    if isinstance(one, float):
        return "" if close(one, other, 2e-4) else f"{at}: {one} against {other}"
    if isinstance(one, str | int | bool):
        return "" if one == other else f"{at}: {one!r} against {other!r}"
    return ""
