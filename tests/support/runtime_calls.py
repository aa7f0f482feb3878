"""Uses of the runtime module in generated code, compared with what the module defines; torch is not needed."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from nb2ddp.runtime import support_module

Function = ast.FunctionDef | ast.ClassDef


@functools.cache
def public() -> Mapping[str, ast.stmt]:
    """Return what the module defines for scripts by name: functions, classes, and values in lower case."""
    found: dict[str, ast.stmt] = {}
    for node in ast.parse(support_module()).body:
        targets: list[ast.expr] = []
        if isinstance(node, Function):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Assign):
            targets = node.targets
        found.update({target.id: node for target in targets if isinstance(target, ast.Name)})
        if (
            isinstance(node, ast.FunctionDef) and node.name == "__getattr__"
        ):  # of the module: values made when read
            found.update(dict.fromkeys(re.findall(r"name == '(\w+)'", ast.unparse(node)), node))
    return {name: node for name, node in found.items() if not name.startswith("_")}


@functools.cache
def _signature(name: str) -> inspect.Signature:
    node = public()[name]
    if isinstance(node, ast.ClassDef):  # a context manager; one with parameters would have to be read here
        assert not any(isinstance(part, ast.FunctionDef) and part.name == "__init__" for part in node.body)
        return inspect.Signature()
    assert isinstance(node, ast.FunctionDef)
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    bare = ast.parse(f"def {name}({ast.unparse(node.args)}): pass")
    names: dict[str, Any] = {}
    exec(compile(bare, "signature", "exec"), names)
    return inspect.signature(names[name])


def uses(code: str, module: str = "ddp") -> Iterator[tuple[str, ast.Call | None]]:
    """Yield each name of the runtime module in a script, with the call that it is the function of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # of the notebook's own texts
        warnings.simplefilter("ignore", DeprecationWarning)
        tree = ast.parse(code)
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == module:
            yield node.attr, calls.get(id(node))


def check_uses(code: str, module: str = "ddp") -> None:
    """Check that what a script uses of the module is there, and takes the arguments that it is given."""
    for name, call in uses(code, module):
        assert name in public(), f"{module}.{name} does not exist"
        if call is None or not isinstance(public()[name], Function):
            continue
        starred = any(isinstance(argument, ast.Starred) for argument in call.args)
        keywords = {keyword.arg: None for keyword in call.keywords if keyword.arg is not None}
        bind = _signature(name).bind_partial if starred else _signature(name).bind
        bind(*[argument for argument in call.args if not isinstance(argument, ast.Starred)], **keywords)
