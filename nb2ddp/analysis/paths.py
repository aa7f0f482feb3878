"""Tell which expressions are paths of files, and which of those lie in a rank's own temporary directory.

What cannot be told is no path: a write that every rank makes on its own is a smaller fault than a gate around a
value that the other ranks need.
"""

from __future__ import annotations

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.calls import Label
from nb2ddp.analysis.drawn_names import is_shared
from nb2ddp.analysis.facts import Facts

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
    return facts.carries(node, facts.once(_paths))


def names_file(facts: Facts, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a Path or a string, not an open file or a buffer."""
    return facts.carries(node, facts.once(_texts)) or is_path(facts, node)


def is_in_own_folder(facts: Facts, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a buffer, a temporary file, or a path below a temporary directory."""
    return facts.carries(node, facts.once(_own))


# ---- labels -------------------------------------------------------------------------------------


def _paths(facts: Facts) -> Label:
    def label(node: cst.CSTNode) -> bool | None:
        match node:
            case cst.Call(func=function):
                return _makes(facts, function, _PATH_MAKERS)
            case cst.BinaryOperation(operator=cst.Divide(), right=cst.BaseString()):
                return True
            case cst.Attribute(attr=attr):
                return None if attr.value in _PATH_METHODS | {"parent"} else False
            case cst.BinaryOperation(operator=cst.Divide()) | cst.Name():
                return None
        return False

    return label


def _texts(facts: Facts) -> Label:
    def label(node: cst.CSTNode) -> bool | None:
        match node:
            case cst.BaseString():
                return True
            case cst.Call(func=cst.Attribute(attr=cst.Name("format"))):
                return None
            case cst.Call(func=function):
                return facts.qualified(function) in _TEXT_MAKERS
        return None if isinstance(node, cst.Name | cst.BinaryOperation | cst.Attribute) else False

    return label


def _own(facts: Facts) -> Label:
    def label(node: cst.CSTNode) -> bool | None:
        match node:
            case cst.BaseExpression() if is_shared(facts, node):
                return False
            case cst.Call(func=function):
                makers = _PATH_CLASSES | _TEXT_MAKERS
                is_path = facts.qualified(function) in makers or _makes(facts, function, frozenset()) is None
                return None if is_path else facts.qualified(function) in libraries.OWN_BUFFERS
        return None

    return label


def _makes(facts: Facts, function: cst.BaseExpression, makers: frozenset[str]) -> bool | None:
    """Return whether a call makes a path; None where a path's method does."""
    if isinstance(function, cst.Attribute) and function.attr.value in _PATH_METHODS:
        return None
    return facts.qualified(function) in makers
