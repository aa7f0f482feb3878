"""The canary: the newest releases that install together today, against the pinned ones.

    python benchmarks/canary.py [--build] [--torch VERSION] [--unsloth VERSION] [--move] [--kept]

Two stacks are built below build/canary: `together`, the newest Unsloth with the newest of the others that it accepts,
and `ahead`, the newest of all others without Unsloth. torch stays the pinned release: another is a download of
gigabytes, of CUDA builds that no CPU uses (--torch takes one). What differs from the pinned stack is printed: versions;
names and arguments that are gone; warnings; rows of the ledger's slice;
choices of arguments that train another run. A stack of the pinned versions is not run.
Exit code 1: a row is worse than published. --build stops before the slice; --move moves the pins in tests/stacks when
all is green; `make pins` resolves them then. --unsloth checks another Unsloth; one before 2026.10.9 has no CPU backend.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ledger
import ledger_page

from nb2ddp.rehearse.ledger import Row
from tests.support import ROOT
from tests.support.runs import STACKS

PINS = ROOT / "tests" / "stacks"
BUILD = ROOT / "build" / "canary"
PACKAGES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "unsloth", "unsloth_zoo")
SLICES = {
    "together": ("sample_notebooks/alpaca_sft.ipynb", "tests/notebooks/chat_responses.ipynb"),
    "ahead": (
        "sample_notebooks/peft_loop.ipynb",
        "tests/notebooks/classification.ipynb",
        "tests/notebooks/kto.ipynb",
        "tests/notebooks/embeddings.ipynb",
        "benchmarks/programs/trainer_reward.py",
    ),
}
# Names by module, arguments by class, and the warnings of the imports: as JSON, in the stack's own Python.
ASK = r"""
import importlib, importlib.metadata as metadata, inspect, json, sys, warnings
names, seen = {}, []
warnings.simplefilter("always")
warnings.showwarning = lambda text, kind, *rest, **more: seen.append(f"{kind.__name__}: {text}".splitlines()[0])
for module in ("transformers", "trl", "peft", "accelerate", "accelerate.data_loader", "accelerate.utils"):
    found = importlib.import_module(module)
    names[module] = sorted(set(n for n in dir(found) if n[0] != "_") - set(getattr(found, "_modules", ())))
import transformers, trl, accelerate
classes = [transformers.Trainer, transformers.TrainingArguments, accelerate.Accelerator]
wanted = "SFT DPO KTO ORPO GRPO Reward".split()
classes += [getattr(trl, f"{w}{k}", None) for w in wanted for k in ("Trainer", "Config")]
for found in filter(None, classes):
    at = f"{found.__module__.split('.')[0]}.{found.__name__}"
    names[at] = sorted(name for name in dir(found) if not name.startswith("__"))
    names[at + "()"] = sorted(inspect.signature(found).parameters)
found = {}
for package in sys.argv[1:]:
    try:
        found[package] = metadata.version(package)
    except metadata.PackageNotFoundError:
        pass
print("\n" + json.dumps({"names": names, "warnings": sorted(set(seen)), "versions": found}))
"""
SHOWN = 12  # names at a place
IMPORTS = {"together": "unsloth", "ahead": "trl"}  # what the slice of a stack trains with
REQUIRES = "import importlib.metadata as m, json; print(json.dumps(m.requires('unsloth') + m.requires('unsloth_zoo')))"


@dataclass(frozen=True)
class Asked:
    """What a stack's own Python told of itself."""

    names: dict[str, list[str]]
    warnings: list[str]
    versions: dict[str, str]


# ---- the stacks -----------------------------------------------------------------------------------


def uv(*arguments: str | Path) -> None:
    subprocess.run([ROOT / ".venv" / "bin" / "uv", *arguments], cwd=ROOT, check=True)


def build(name: str, torch: str, unsloth: str | None) -> Path:
    """Make the stack's environment and return its Python; Unsloth goes in without its dependencies (see common.in)."""
    folder = BUILD / name
    python = folder / "bin" / "python"
    uv("venv", "--quiet", "--clear", "--python", sys.executable, folder)
    install = ("pip", "install", "--quiet", "--python", python)
    accepted = []
    if name == "together":
        which = "unsloth" if unsloth is None else f"unsloth=={unsloth}"
        zoo = "unsloth_zoo" if unsloth is None else f"unsloth_zoo=={unsloth}"
        uv(
            *install,
            "--no-deps",
            "--refresh-package",
            "unsloth",
            "--refresh-package",
            "unsloth_zoo",
            which,
            zoo,
        )
        accepted = accepts(python)
    common = re.sub(r"^torch==.*$", f"torch=={torch}", (PINS / "common.in").read_text(), flags=re.M)
    wanted = [common, "transformers", "trl", "sentence-transformers", *accepted]
    (BUILD / f"{name}.in").write_text("\n".join(wanted) + "\n")
    resolved = BUILD / f"{name}.txt"
    uv(
        *("pip", "compile", "--quiet", "--upgrade", "--python-version", "3.11", "--no-header"),
        *("--no-annotate", BUILD / f"{name}.in", "--output-file", resolved),
    )
    uv(*install, "--no-deps", "--requirements", resolved)
    return python


def accepts(python: Path) -> list[str]:
    """Return what the installed Unsloth accepts of the packages that this is about."""
    asked = subprocess.run([python, "-c", REQUIRES], capture_output=True, text=True, check=True)
    names = "|".join(PACKAGES[1:6])  # torch stays
    found = [text.partition(";")[0].strip() for text in json.loads(asked.stdout) if "extra" not in text]
    return sorted({text for text in found if re.match(rf"(?:{names})\b", text)})


def ask(python: Path) -> Asked:
    """Ask a stack for its names, versions, and the warnings of its imports."""
    done = subprocess.run(
        [python, "-c", ASK, *PACKAGES],
        capture_output=True,
        text=True,
        check=False,
        env={"CUDA_VISIBLE_DEVICES": ""},
    )
    if done.returncode:
        sys.exit(f"{python} cannot import its packages:\n{done.stderr[-2000:]}")
    return Asked(**json.loads(done.stdout.splitlines()[-1]))


def refusal(python: Path, module: str) -> str:
    """Return what the import of a module ends with on this machine, without its GPUs; empty where it is imported."""
    done = subprocess.run(
        [python, "-c", f"import {module}"],
        capture_output=True,
        text=True,
        check=False,
        env={"CUDA_VISIBLE_DEVICES": ""},
    )
    return (
        ""
        if not done.returncode
        else (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
    )


# ---- what changed ---------------------------------------------------------------------------------


def changed_versions(pinned: Asked, new: Asked) -> list[str]:
    return [
        f"{name}: {pinned.versions.get(name, 'none')} -> {new.versions[name]}"
        for name in PACKAGES
        if name in new.versions and new.versions[name] != pinned.versions.get(name)
    ]


def gone(pinned: Asked, new: Asked) -> dict[str, list[str]]:
    """Return by place the names and arguments of the pinned stack that the new one lacks, modules left out."""
    lacking = {
        place: sorted(name for name in set(names) - set(new.names.get(place, ())) if "." not in name)
        for place, names in pinned.names.items()
    }
    return {place: names for place, names in lacking.items() if names}


def used(names: Sequence[str]) -> list[str]:
    """Return those of the names that nb2ddp's own code or tables hold."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "nb2ddp").rglob("*.py")))
    words = set(re.findall(r"\w+", text))
    return [name for name in names if name in words]


# ---- the slice ------------------------------------------------------------------------------------


def measured(stack: str, path: Path) -> tuple[Row, set[str]]:
    """Return the row of a notebook on two ranks, and what the run warned of."""
    with tempfile.TemporaryDirectory(prefix="canary-") as folder:
        try:
            row = ledger.measure(ledger.Case(path, stack, 2), Path(folder), controls=False)
        except ledger.LeftOutError as error:
            row = Row(path.stem, stack, 2, "failed", f"the notebook itself: {error}")
        texts = [file.read_text(errors="replace") for file in Path(folder).rglob("output.txt")]
    lines = {re.sub(r"\S*/|\b\d+\b|0x\w+", "", line).strip() for text in texts for line in text.splitlines()}
    return row, {
        line
        for line in lines
        if re.search(r"\wWarning:|deprecat|removed in", line) and not re.search(r"\||warnings\.warn\(", line)
    }


def run_slice(stack: str, published: dict[str, Row]) -> list[str]:
    """Print each row of the slice against the published one; return what is worse."""
    found = []
    for name in SLICES[stack]:
        row, warned = measured(stack, ROOT / name)
        pinned, known = measured("newest", ROOT / name)
        old = published.get(f"{row.notebook} newest 2", pinned)
        row.stack = "newest"
        said = ledger.worse(row, old)
        found += [f"{stack}: {said}"] * bool(said)
        figures = ledger_page.figure(row.loss_difference), ledger_page.figure(old.loss_difference)
        print(
            f"  {row.notebook}: {row.verdict} {row.reason}, loss {figures[0]} (published: {old.verdict}, {figures[1]})"
        )
        for line in sorted(warned - known):
            print(f"    new warning: {line[:200]}")
    return found


def run_arguments(stack: str, python: Path) -> list[str]:
    """Train with each choice of each argument that this stack has; return what is neither the same nor said."""
    rows = BUILD / f"{stack}-arguments.jsonl"
    rows.unlink(missing_ok=True)
    done = subprocess.run(
        [python, "benchmarks/arguments.py", "--rows", rows], cwd=ROOT, capture_output=True, text=True
    )
    lines = done.stdout.splitlines()
    print("  arguments: " + (lines[-1] if lines else done.stderr[-200:]))
    faults = [line for line in lines if re.search(r" (silent|crash|hang) ", line)]
    return [f"{stack}: {' '.join(line.split())}" for line in faults] or [f"{stack}: no arguments"] * (
        not lines
    )


# ---- the command ----------------------------------------------------------------------------------


def check(
    stack: str, given: argparse.Namespace, pinned: Asked, published: dict[str, Row]
) -> tuple[Asked, list[str]]:
    """Build a stack, print what changed in it, and run its slice; return what is wrong."""
    python = BUILD / stack / "bin" / "python"
    if not (given.kept and python.exists()):
        python = build(stack, given.torch, given.unsloth)
    new = ask(python)
    versions = changed_versions(pinned, new)
    print(f"\n{stack}: {', '.join(f'{name} {number}' for name, number in new.versions.items())}")
    print("  changed: " + ("; ".join(versions) or "nothing, these are the pinned versions"))
    lacking = gone(pinned, new)
    print(f"  names that are gone: {sum(map(len, lacking.values()))}")
    for place, names in lacking.items():
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        ours = ", ".join(used(names)) or "none"
        print(f"    {place}: {', '.join(names[:SHOWN])}{more}; words of nb2ddp's code among them: {ours}")
    for text in sorted(set(new.warnings) - set(pinned.warnings)):
        print(f"    new warning at import: {text[:200]}")
    if given.build or not versions:
        return new, []
    if said := refusal(python, IMPORTS[stack]):
        module = IMPORTS[stack]
        print(f"  no row is measured: {module} cannot be imported on this CPU ({said[:200]})")
        return new, [f"{stack}: {module} {new.versions.get(module, '')} cannot be imported on this CPU"]
    STACKS[stack] = python
    return new, [*run_slice(stack, published), *run_arguments(stack, python)]


def move(together: Asked) -> None:
    """Pin what was checked in tests/stacks; `make pins` resolves the rest."""
    moved = []
    for file, names in (("newest.in", ("transformers", "trl")), ("unsloth.txt", ("unsloth", "unsloth_zoo"))):
        before = text = (PINS / file).read_text()
        for name in names:
            text = re.sub(rf"^{name}==.*$", f"{name}=={together.versions[name]}", text, flags=re.M)
        if text != before:
            (PINS / file).write_text(text)
            moved.append(f"tests/stacks/{file}")
    said = f"{' and '.join(moved)} moved: run `make pins`, then `make test`"
    print(said if moved else "tests/stacks names these versions already: nothing was moved")


def main() -> int:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    pinned = ask(Path(sys.executable))
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--torch", default=pinned.versions["torch"])
    parser.add_argument("--unsloth", help="check this Unsloth")
    parser.add_argument("--move", action="store_true")
    parser.add_argument("--kept", action="store_true", help="use the stacks that an earlier call has built")
    given = parser.parse_args()
    if given.move and given.build:
        parser.error("--move moves what a slice has shown to be green, and --build runs none")
    BUILD.mkdir(parents=True, exist_ok=True)
    published, _ = ledger_page.load(ROOT / "docs" / "ledger")
    print("pinned: " + ", ".join(f"{name} {number}" for name, number in pinned.versions.items()))
    print(
        f"torch stays {given.torch}: a newer one comes from PyPI with CUDA, and no CPU build of it can be had here"
    )
    together, worse = check("together", given, pinned, published)
    worse += check("ahead", given, pinned, published)[1] if given.unsloth is None else []
    print("\n" + ("\n".join(["worse:", *worse]) if worse else "green: no row is worse than published"))
    if given.move and not worse:
        move(together)
    return int(bool(worse))


if __name__ == "__main__":
    sys.exit(main())
