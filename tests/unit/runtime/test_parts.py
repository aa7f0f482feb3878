"""The runtime module's parts: cut by topic, imported one way, and joined into one file that reads like any other."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TypeGuard

import pytest

from nb2ddp import runtime
from nb2ddp.ddp_folder import SUPPORT
from nb2ddp.runtime import PARTS, support_module
from tests.support import ROOT

FOLDER = Path(runtime.__file__).parent
TREES = {name: ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8")) for name in PARTS}


def definitions(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the name and the code of each definition."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, ast.dump(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name for target in targets for name in ast.walk(target) if _is_defined(name)]
            yield from ((name.id, ast.dump(node)) for name in names)


def _is_defined(node: ast.AST) -> TypeGuard[ast.Name]:
    """Say whether an assignment defines this name: `_run.dropout = ...` sets an attribute of a name that exists."""
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def imported_parts(tree: ast.Module) -> Iterator[str]:
    """Yield the parts that a part imports at run time, in functions too."""
    for node in tree.body:
        if isinstance(node, ast.If):
            assert ast.unparse(node.test) == "TYPE_CHECKING"
            continue
        for inner in ast.walk(node):
            if isinstance(inner, ast.ImportFrom) and str(inner.module).startswith("nb2ddp"):
                yield str(inner.module).removeprefix("nb2ddp.runtime.")


def test_every_module_of_the_folder_is_a_part() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted([*PARTS, "__init__"])


@pytest.mark.parametrize("number", range(len(PARTS)), ids=PARTS)
def test_a_part_imports_only_parts_above_it(number: int) -> None:
    assert set(imported_parts(TREES[PARTS[number]])) <= set(PARTS[:number])


def test_a_name_stands_in_one_part() -> None:
    counted = Counter(name for tree in TREES.values() for name, _ in definitions(tree))
    assert [name for name, count in counted.items() if count > 1] == []


def test_the_file_holds_each_definition_of_the_parts_as_it_is() -> None:
    parts = [definition for name in PARTS for definition in definitions(TREES[name])]
    assert list(definitions(ast.parse(support_module()))) == parts


def test_a_part_is_no_longer_than_a_module_should_be() -> None:
    lengths = {name: len((FOLDER / f"{name}.py").read_text().splitlines()) for name in PARTS}
    assert {name: length for name, length in lengths.items() if length >= 400} == {}


def test_the_file_imports_nothing_of_ours_and_says_where_its_functions_are() -> None:
    tree = ast.parse(support_module())
    names = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not any("nb2ddp" in name for name in names)
    contents = (ast.get_docstring(tree) or "").partition("What a script calls")[2]
    public = [name for name, _ in definitions(tree) if not name.startswith("_")]
    assert [word.strip(",") for word in contents.split() if word.strip(",") in public] == public


@pytest.mark.parametrize("command", [("check",), ("format", "--diff")])
def test_the_file_is_as_ruff_leaves_it(command: tuple[str, ...]) -> None:
    arguments = [sys.executable, "-m", "ruff", *command, "--stdin-filename", f"nb2ddp/runtime/{SUPPORT}", "-"]
    done = subprocess.run(arguments, cwd=ROOT, input=support_module(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_file_is_the_same_in_another_process() -> None:
    """The order of a set of names differs from process to process."""
    code = "from nb2ddp.runtime import support_module; print(support_module(), end='')"
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        assert done.stdout == support_module(), done.stderr


@pytest.mark.thorough
def test_the_file_is_typed(tmp_path: Path) -> None:
    (tmp_path / SUPPORT).write_text(support_module(), encoding="utf-8")
    loose = ["--allow-subclassing-any", "--allow-untyped-decorators", "--follow-imports=skip"]
    arguments = ["--strict", *loose, "--ignore-missing-imports", "--config-file=", str(tmp_path / SUPPORT)]
    done = subprocess.run([sys.executable, "-m", "mypy", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
