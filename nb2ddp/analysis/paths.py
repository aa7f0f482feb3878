"""Tell which expressions are paths of files, and which of those lie in a rank's own temporary directory.

What cannot be told is no path: a write that every rank makes on its own is a smaller fault than a gate around a
value that the other ranks need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.drawn_names import is_shared
from nb2ddp.analysis.facts import Facts

# What a node tells: yes, or the expressions of which one has to be it.
_Step = Callable[[Facts, cst.BaseExpression], bool | Sequence[cst.BaseExpression]]

_PATH_CLASSES = frozenset("pathlib.Path pathlib.PosixPath pathlib.WindowsPath pathlib.PurePath".split())
_PATH_MAKERS = _PATH_CLASSES | {"pathlib.Path.cwd", "pathlib.Path.home"}
_PATH_METHODS = frozenset(
    "joinpath resolve absolute with_suffix with_name with_stem expanduser relative_to".split()
)
_TEXT_MAKERS = frozenset(
    "str os.fspath os.path.join os.path.abspath os.path.expanduser os.path.realpath os.path.normpath".split()
)


def is_path(facts: Facts, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a Path: ``Path("a") / "b"``, or a name for it."""
    return _leads(facts, node, _path)


def names_file(facts: Facts, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a Path or a string, not an open file or a buffer."""
    return _leads(facts, node, _text) or is_path(facts, node)


def is_in_own_folder(facts: Facts, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a buffer, a temporary file, or a path below a temporary directory."""
    return _leads(facts, node, _own)


def may_be_path(facts: Facts, owner: cst.BaseExpression, method: str) -> bool:
    """Return whether nothing tells that ``owner.method()`` is of a class of the notebook or of a library."""
    for found in facts.bindings(method):
        if isinstance(found.node, cst.FunctionDef) and isinstance(found.scope, cst.ClassDef):
            return False
    if isinstance(owner, cst.Name):
        if owner.value in ("self", "cls"):
            return False
        owner = next(iter(_bound(facts, owner)), owner)
    return not isinstance(owner, cst.Call) or not _is_class(facts, owner.func)


def _is_class(facts: Facts, function: cst.BaseExpression) -> bool:
    """Match ``Node()``, of the notebook or imported, and ``super()``; not the classes of paths."""
    name = facts.qualified(function)
    if name in _PATH_CLASSES:
        return False
    defined = facts.bindings(name)
    return (
        name == "super"
        or name.rpartition(".")[2][:1].isupper()
        or any(isinstance(found.node, cst.ClassDef) for found in defined)
    )


def _leads(facts: Facts, node: cst.BaseExpression, step: _Step) -> bool:
    """Return whether ``step`` says yes to an expression, or to one that it leads to."""
    queue, seen = [node], {node}
    while queue:
        answer = step(facts, queue.pop())
        if isinstance(answer, bool):
            if answer:
                return True
            continue
        queue += (more := [found for found in answer if found not in seen])
        seen.update(more)
    return False


def _bound(facts: Facts, name: cst.Name) -> Sequence[cst.BaseExpression]:
    value = facts.bound(name)
    return (value,) if value is not None else ()


def _path(facts: Facts, node: cst.BaseExpression) -> bool | Sequence[cst.BaseExpression]:
    match node:
        case cst.Name():
            return _bound(facts, node)
        case cst.BinaryOperation(left=left, operator=cst.Divide(), right=right):
            return isinstance(right, cst.BaseString) or (left,)
        case cst.Attribute(value=value, attr=cst.Name(value="parent")):
            return (value,)
        case cst.Call(func=function) if facts.qualified(function) in _PATH_MAKERS:
            return True
        case cst.Call(func=cst.Attribute(value=owner, attr=attr)) if attr.value in _PATH_METHODS:
            return (owner,)
        case _:
            return False


def _text(facts: Facts, node: cst.BaseExpression) -> bool | Sequence[cst.BaseExpression]:
    match node:
        case cst.BaseString():
            return True
        case cst.Name():
            return _bound(facts, node)
        case cst.BinaryOperation(left=left, operator=cst.Add(), right=right):
            return (left, right)
        case cst.BinaryOperation(left=left, operator=cst.Modulo()):
            return (left,)
        case cst.Call(func=cst.Attribute(value=owner, attr=cst.Name(value="format"))):
            return (owner,)
        case cst.Call(func=function):
            return facts.qualified(function) in _TEXT_MAKERS
        case _:
            return False


def _own(facts: Facts, node: cst.BaseExpression) -> bool | Sequence[cst.BaseExpression]:
    if is_shared(facts, node):
        return False
    match node:
        case cst.Name():
            binding = facts.binding(node)
            of_call = binding is not None and isinstance(binding.node, cst.Param)
            return tuple(facts.given(binding)) if binding is not None and of_call else _bound(facts, node)
        case cst.Attribute(value=value, attr=attr):
            return (value, *facts.assigned(attr.value))
        case cst.Subscript(value=value):
            return (value,)
        case cst.BinaryOperation(left=left, operator=cst.Divide() | cst.Add()):
            return (left,)
        case cst.FormattedString(parts=[cst.FormattedStringExpression(expression=first), *_]):
            return (first,)
        case cst.Call(func=function, args=arguments):
            name = facts.qualified(function)
            if name in libraries.OWN_BUFFERS:
                return True
            if name in _PATH_CLASSES | _TEXT_MAKERS:
                return tuple(argument.value for argument in arguments[:1])
            if isinstance(function, cst.Attribute) and function.attr.value in _PATH_METHODS:
                return (function.value,)
            return False
        case _:
            return False
