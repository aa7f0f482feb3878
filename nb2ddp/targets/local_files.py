"""Find what a script reads of this machine's files: a kernel has none of them."""

from __future__ import annotations

import ast
import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path, PurePath

from nb2ddp.source.syntax_check import NOT_PYTHON, parse

_LONGEST = 255
# A call, method or keyword of these names makes the file: the script has it on Kaggle too.
_WRITES = re.compile(
    r"save|writ|dump|to_|mkdir|makedirs|mktemp|push|export|download|retrieve|copy|move|rename"
)
_ARGUMENTS = re.compile(r"(?:Arguments|Config)$")
_SHELLS = ("shell", "shell_output", "system", "run")
# The programs that only read the files that they are given.
_READING = frozenset("cat head tail wc unzip gunzip tar python python3 bash sh".split())
_PARTS, _WORDS, _PATTERN = re.compile(r"&&|\|\||[|;\n]"), re.compile(r"[\w./-]+"), re.compile(r"[*?\[]")
_PLACES = re.compile(r"output|log|save|cache|project|run_name|dest|dst")


@dataclass(frozen=True)
class LocalFiles:
    """Files and folders that a script reads, relative to ``base``, and those that only this machine can have."""

    base: Path
    names: tuple[str, ...] = ()
    absolute: tuple[str, ...] = ()


def local_files(script: str, base: Path) -> LocalFiles:
    """Return the files and folders below ``base`` that the text of a script names, and does not make itself.

    Nothing is executed: what decides is that they exist here. Modules beside the notebook count.
    """
    try:
        module = parse(script)
    except NOT_PYTHON:
        return LocalFiles(base)
    known = _constants(module)
    made = {PurePath(text) for node in ast.walk(module) for text in _written(node, known)}
    read: list[str] = []
    for command in (
        part for node in ast.walk(module) for text in _commands(node) for part in _PARTS.split(text)
    ):
        words = _WORDS.findall(command)
        taken = _read_by(words)
        read += taken
        makes = {PurePath(word) for word in words if word not in taken}  # also what an address ends with
        made |= makes | {PurePath(path.name.removesuffix(".git")) for path in makes}
    named: dict[str, None] = {}
    absolute: dict[str, None] = {}
    for text in [*_texts(module), *_modules(module), *_globbed(module, base), *read]:
        path = PurePath(text)
        if {path, *path.parents} & (made - {PurePath()}):
            continue
        if path.is_absolute():
            if _is_ours(Path(text), base):
                absolute[text] = None
        elif path.parts and ".." not in path.parts and _exists(base / path):
            named[path.as_posix()] = None
    inner = {
        name for name in named for other in named if other != name and PurePath(name).is_relative_to(other)
    }
    return LocalFiles(base, tuple(sorted(named.keys() - inner)), tuple(sorted(absolute)))


def _read_by(words: list[str]) -> list[str]:
    """Return the words of a command that name what it reads; any other word may be what it makes."""
    program, *arguments = words or [""]
    given = [word for word in arguments if not word.startswith("-")]
    if program in ("cp", "mv"):
        return given[:-1]
    return given if program in _READING else []


def _globbed(module: ast.Module, base: Path) -> Iterator[str]:
    """Yield what patterns of ``glob()`` name here: the folder before the pattern, or the files that it fits."""
    for node in ast.walk(module):
        given = node.args[:1] if isinstance(node, ast.Call) and _name_of(node).endswith("glob") else []
        for text in (
            arg.value for arg in given if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        ):
            before = PurePath(*takewhile(lambda part: not _PATTERN.search(part), PurePath(text).parts))
            yield from [str(before)] if before.parts else fnmatch.filter(os.listdir(base), text)


def _exists(path: Path) -> bool:
    """Return whether a path is here, and no folder in which an earlier run has kept its checkpoints."""
    try:
        return path.exists() and not any(path.glob("checkpoint-*/trainer_state.json"))
    except (OSError, ValueError):
        return False


def _is_ours(path: Path, base: Path) -> bool:
    """Return whether an absolute path is one of the user's files, and none of the system's."""
    home = Path.home()
    places = [base.absolute(), *([home] if len(home.parts) > 1 else [])]
    return any(path.is_relative_to(place) and path != place for place in places) and _exists(path)


def _texts(module: ast.Module) -> Iterator[str]:
    """Yield what may be a path: each string that is no docstring."""
    docs = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            text = node.value.strip()
            if text and len(text) <= _LONGEST and "\n" not in text and "\0" not in text and "://" not in text:
                yield text


def _modules(module: ast.Module) -> Iterator[str]:
    for node in ast.walk(module):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
        for name in names:
            top = name.partition(".")[0]
            if top != "ddp_support":
                yield f"{top}.py"
                yield f"{top}/__init__.py"


def _constants(module: ast.Module) -> dict[str, str]:
    """Return the names that are bound to one text."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, set()).add(str(node.value.value))
    return {name: texts.pop() for name, texts in found.items() if len(texts) == 1}


def _written(node: ast.AST, known: dict[str, str]) -> Iterator[str]:
    """Yield the texts of a call that name what it makes."""
    if not isinstance(node, ast.Call):
        return
    name = _name_of(node)
    parts: list[ast.AST] = []
    if _WRITES.match(name) or _opens_to_write(name, node):
        parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        if isinstance(node.func, ast.Attribute):  # Path("rows.jsonl").write_text(...)
            parts.append(node.func.value)
    if _ARGUMENTS.search(name):  # a Trainer's first one is its output folder
        parts += node.args[:1]
    parts += [keyword.value for keyword in node.keywords if keyword.arg and _PLACES.search(keyword.arg)]
    for part in parts:
        for inner in ast.walk(part):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                yield inner.value.strip()
            elif isinstance(inner, ast.Name) and inner.id in known:
                yield known[inner.id]


def _name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _opens_to_write(name: str, call: ast.Call) -> bool:
    if name != "open":
        return False
    given = [*call.args[:2], *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    modes = [arg.value for arg in given if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
    return any(re.fullmatch(r"[wax][bt+]{0,2}", mode) for mode in modes)


def _commands(node: ast.AST) -> Iterator[str]:
    """Yield the shell lines, which may make whatever they name."""
    if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in _SHELLS:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                yield inner.value
