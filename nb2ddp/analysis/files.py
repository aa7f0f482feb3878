"""Tell which expressions are paths of files, which calls look at what files there are, and what follows from a look.

What cannot be told is no path: a write that every rank makes on its own is a smaller fault than a gate around a
value that the other ranks need. ``os.makedirs(folder, exist_ok=True)`` may run on every rank. Where a test before it
decides what it is called, or whether it is new, a rank that looks when rank 0 has made it goes another way.
"""

from __future__ import annotations

from functools import partial

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.common_paths import called_by_all, makes_folder, parts_ranks
from nb2ddp.analysis.drawn_names import shared_names
from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes

_PATH_CLASSES = frozenset("pathlib.Path pathlib.PosixPath pathlib.WindowsPath pathlib.PurePath".split())
_PATH_MAKERS = _PATH_CLASSES | {"pathlib.Path.cwd", "pathlib.Path.home"}
_WITH = {"with_suffix", "with_name", "with_stem"}
_PATH_METHODS = _WITH.union("joinpath resolve absolute expanduser relative_to parent".split())
_KEEPING_KIND = frozenset({"format", "replace", "rename"})  # of texts and of paths
_TEXT_MAKERS = frozenset(
    "str os.fspath os.path.join os.path.abspath os.path.expanduser os.path.realpath os.path.normpath".split()
)


def _names_file(facts: Facts, node: cst.CSTNode, makers: frozenset[str], *, texts: bool) -> bool | None:
    """Label what the ``makers`` return and paths that are put together, with ``texts`` also strings."""
    match node:
        case cst.Call(func=function) if facts.method(node) not in _PATH_METHODS | _KEEPING_KIND:
            return facts.qualified(function) in makers
        case cst.BinaryOperation(operator=cst.Divide(), right=cst.BaseString()):
            return True
        case cst.Call() if facts.method(node) in _WITH:
            return True
        case cst.Call() | cst.Name() | cst.Attribute() | cst.BinaryOperation():
            return None
    return texts and isinstance(node, cst.BaseString)


path = partial(_names_file, makers=_PATH_MAKERS, texts=False)
_path_or_text = partial(_names_file, makers=_PATH_MAKERS | _TEXT_MAKERS, texts=True)


def own_folder(facts: Facts, node: cst.CSTNode) -> bool | None:
    """Label buffers and temporary files and directories, below which paths lie that no other rank knows."""
    match node:
        case cst.BaseExpression() if node in shared_names(facts):
            return False
        case cst.Call(func=function):
            name = facts.qualified(function)
            is_path = name in _PATH_CLASSES | _TEXT_MAKERS or facts.method(node) in _PATH_METHODS
            return None if is_path else name in libraries.OWN_BUFFERS
    return None


_ARCHIVES = frozenset("zipfile.ZipFile tarfile.open h5py.File gzip.open bz2.open lzma.open".split())
OPENING = _ARCHIVES | {"open", "io.open", "codecs.open", "os.open", "os.fdopen"}
# What flags of os.open() are as letters of a mode.
_FLAGS = {"O_EXCL": "x", "O_APPEND": "a", "O_WRONLY": "w", "O_CREAT": "w", "O_RDWR": "+"}


def mode(facts: Facts, call: cst.Call) -> str:
    """Return the mode in which a call opens a file or an archive; "" where it opens none by its path."""
    is_function = facts.qualified(call.func) in OPENING
    is_buffer = facts.qualified(call.func) in _ARCHIVES and not is_given_path(facts, call)
    if is_buffer or not (is_function or facts.method(call) == "open"):
        return ""
    told = cst_nodes.given(call, 1 if is_function else 0, "mode", "flags")
    given = facts.value(told) or told
    if given is not None and facts.qualified(call.func) == "os.open":
        return "".join(letter for flag, letter in _FLAGS.items() if flag in cst_nodes.code_of(given))
    parts = (given.body, given.orelse) if isinstance(given, cst.IfExp) else (given,)
    texts = [(cst_nodes.string_value(part) or "").partition(":")[0] for part in parts]  # "w:gz"
    reads = isinstance(of := facts.parent(call), cst.Attribute) and of.attr.value.startswith("read")
    return "".join(text for text in texts if len(text) < 4 and not (reads and "r" in text))  # "r+" at most


def is_given_path(facts: Facts, call: cst.Call) -> bool:
    """Return whether the file of a call is given by a Path or a string: it may be an open file or a buffer as well."""
    given = cst_nodes.given(call, 0, "fp", "file", "name", "filename", "fname", "path")
    return given is not None and facts.carries(given, _path_or_text)


# ---- looks at files -----------------------------------------------------------------------------

_LOOKS = libraries.FILE_TESTS | {"os.scandir", "os.walk", "os.path.lexists", "glob.iglob"}
_LOOKING = libraries.FILE_TEST_METHODS | {"rglob"}


def may_exist(facts: Facts, call: cst.Call) -> bool:
    """Match ``os.makedirs(folder, exist_ok=True)``, and ``mkdir`` with it."""
    return facts.switch(call, "exist_ok") == {True}


def is_looked_for(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call makes a folder that rank 0 alone can make, below a look at files.

    Where it may not be called by all ranks, and where its statement does more than make folders, each rank makes it.
    """
    before = (c for c in facts.live_calls if makes_folder(facts, call) and facts.order(c) < facts.end(call))
    return any(is_file_test(facts, c) for c in before) and _can_be_made_by_one(facts, call)


def _can_be_made_by_one(facts: Facts, call: cst.Call) -> bool:
    statement, scope = facts.statement(call), facts.scope(call)
    if parts_ranks(facts, statement):
        return False
    if isinstance(scope, cst.FunctionDef):
        return called_by_all(facts, call)
    names = facts.binds_in(statement)
    return scope is None and not any(facts.is_read_outside(name, statement) for name in names)


def counted(facts: Facts, node: cst.CSTNode) -> bool | None:
    """Label ``n`` of ``while os.path.exists(f"run{n}"): n += 1``, and ``len(os.listdir("runs"))``."""
    match node:
        case cst.Call(func=cst.Name("len")):
            return looks_at_files(facts, node) or None
        case cst.Name(value=name):
            loops = (facts.around(binding.node, cst.While) for binding in facts.bindings(name))
            return any(loop is not None and looks_at_files(facts, loop.test) for loop in loops) or None
    return None


def is_file_test(facts: Facts, call: cst.Call) -> bool:
    """Return whether a call looks at what files there are."""
    return facts.qualified(call.func) in _LOOKS or facts.method(call) in _LOOKING


def looks_at_files(facts: Facts, node: cst.CSTNode) -> bool:
    """Return whether a call in an expression looks at what files there are."""
    return any(is_file_test(facts, call) for call in facts.calls_in(node))
