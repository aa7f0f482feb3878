"""Let rank 0 go first where code depends on whether a file exists; the other ranks find what it made.

Without an order, ``if not os.path.exists(...)`` is true on all ranks or on one, depending on which comes first.

.. code-block:: diff

     import os
     from trl import SFTTrainer
    -if not os.path.exists("data"):
    -    os.makedirs("data")
    +with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them
    +    if not os.path.exists("data"):
    +        os.makedirs("data")
     trainer = SFTTrainer(model)
     trainer.train()
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import common_paths, files, frameworks, rank_zero_work
from nb2ddp.analysis.common_paths import changes_process, changes_state, leaves, makes_folder
from nb2ddp.analysis.drawn_names import shared_names
from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.deferring import deferring_test
from nb2ddp.rewriting.findings import Finding, Gate
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Statement, root_of

_ONLY_DELETES = libraries.DELETING_FUNCTIONS | libraries.FILE_TESTS | {"print", "os.path.join"}
_MAKES_NONE = libraries.SHOWING_FUNCTIONS | frozenset(
    "str len int sorted list next torch.load numpy.load pandas.read_csv pandas.read_parquet json.load pickle.load "
    "peft.set_peft_model_state_dict".split()
)
_METHODS_THAT_MAKE_NONE = libraries.SHOWING_METHODS | {"load_state_dict"}


def find(facts: Facts, options: Options) -> Iterator[Finding]:
    seen: set[Statement] = set()
    for call in facts.live_calls:
        statement, decided = facts.statement(call), _decided(facts, call)
        if decided is None or statement in seen or facts.is_after_training(call):
            continue
        seen.add(statement)
        made = (c for c in facts.calls_in(statement) if makes_folder(facts, c))
        if isinstance(statement, cst.If) and any(facts.carries(c, files.counted) for c in made):
            # all ranks count to a free name before rank 0 makes the folder, or one would take the next: see rank-zero
            continue
        deletes = _deletes(facts, statement)
        later = common_paths.is_used_later(facts, statement, facts.top_statements[-1])
        gives = later or common_paths.binds_for_later(facts, statement)
        around = (c for c in facts.calls_in(statement) if not facts.contains(decided, c))
        if not gives and any(rank_zero_work.writes(facts, c) for c in around):
            continue  # rank 0 alone adds to what it looks at: see rank-zero
        looks = partial(files.looks_at_files, facts)
        stages = facts.nodes(cst.If, cst.IfExp, within=decided)  # those of `elif`, too
        tests = [s.test for s in stages if facts.statement(s) is statement and looks(s.test)]
        says = leaves(facts, statement) or _differs(facts, statement, call) or deletes == "and changes"
        says |= any("a" in files.mode(facts, c) for c in facts.calls_in(statement))  # each line once
        parts = (isinstance(decided, cst.If) and says) or not _is_found(facts, call, decided)
        if parts or facts.runs(statement, facts.needs_all) or not _may_make_files(facts, statement):
            for test in tests:
                yield from deferring_test(facts, test, "all ranks go rank 0's way", looks)
        elif deletes:  # a later rank would delete what rank 0 has made meanwhile
            yield Gate(statement, "rank-zero-then-wait", "one rank deletes")
        else:
            yield Gate(statement, "main-first", "rank 0 makes the files, the others find them")


def _differs(facts: Facts, statement: Statement, call: cst.Call) -> bool:
    """Return whether a later rank, which finds what rank 0 has made, gets another name, process or value."""
    differs = any(facts.contains(statement, name) for name in shared_names(facts))
    differs |= any(changes_process(facts, call) for call in facts.calls_in(statement))
    for b in facts.bindings_in(statement):
        plain = isinstance(b.node, cst.NamedExpr) or (b.value is not None and not facts.calls_in(b.value))
        differs |= plain and facts.is_read_outside(b.name, statement)
    if isinstance(statement, cst.If) and statement.orelse is not None:
        ways = statement.body, statement.orelse
        others = (way for way in ways if _path(facts, call) not in cst_nodes.code_of(way))
        either = facts.binds_in(ways[0]) & facts.binds_in(ways[1])  # what is loaded, or else made
        differs |= not either or any(changes_state(facts, way) for way in others)
    return differs


def _is_found(facts: Facts, call: cst.Call, decided: cst.If | cst.IfExp) -> bool:
    """Return whether another rank finds what a library trains: it names the path, its file or the method that does.

    Else it would train in its turn.
    """
    training = [p for p in (decided.body, decided.orelse) if p and frameworks.trains_whole(facts, p)]
    codes = [cst_nodes.code_of(part) for part in (*training, *facts.nodes(cst.FunctionDef))]
    path = cst_nodes.given(call, 0) or facts.owner(call) or call
    texts = facts.nodes(cst.SimpleString, within=facts.value(path) or path)[-1:]
    names = {(cst_nodes.string_value(text) or "").rpartition("/")[2] for text in texts}
    names |= {_path(facts, call).strip("()"), f".{facts.method(path)}(" if isinstance(path, cst.Call) else ""}
    return not training or any(name in code for name in names - {""} for code in codes)


def _may_make_files(facts: Facts, statement: Statement) -> bool:
    """Return whether a statement calls more than what looks at files, names or reads them, or makes another folder."""
    calls = [c for c in facts.calls_in(statement) if facts.method(c) not in _METHODS_THAT_MAKE_NONE]
    looks = [call for call in calls if files.is_file_test(facts, call)]
    looked_for = {_path(facts, call) for call in looks}
    made = [c for c in calls if makes_folder(facts, c) and not files.may_exist(facts, c)]
    others = [c for c in made if _path(facts, c) not in looked_for]  # a later rank could not make these
    names = {facts.qualified(call.func) for call in calls if call not in looks + others} - _MAKES_NONE
    return not all(name.startswith(("os.path.", "pathlib.Path")) for name in names)


def _path(facts: Facts, call: cst.Call) -> str:
    """Return the code of the path that a call looks at or makes."""
    path = cst_nodes.given(call, 0) or facts.owner(call)
    return "" if path is None else cst_nodes.code_of(path)


def _deletes(facts: Facts, statement: Statement) -> Literal["", "files", "and changes"]:
    """Match ``if os.path.exists(a): shutil.rmtree(a)``, and a body that does more first: it may change values, too."""
    if not isinstance(statement, cst.If) or statement.orelse is not None:
        return ""
    calls = {call: facts.qualified(call.func) for call in facts.calls_in(statement.body)}
    gone = {_path(facts, call) for call, name in calls.items() if name in libraries.DELETING_FUNCTIONS}
    own, asked = facts.binds_in(statement), {_path(facts, call) for call in facts.calls_in(statement.test)}
    is_read = any(facts.is_read_outside(name, statement) for name in own)
    if not gone or not (_ONLY_DELETES.issuperset(calls.values()) or (gone & asked and not is_read)):
        return ""
    roots = (root_of(call.func) for call in calls if isinstance(call.func, cst.Attribute))
    others = {root.value for root in roots if isinstance(root, cst.Name)} - own
    items = {b.name for b in facts.bindings_in(statement) if isinstance(b.node, cst.For)}  # of a list outside
    changes = items & facts.changes_in(statement) or changes_state(facts, statement)
    return "and changes" if changes or not all(map(facts.is_imported, others)) else "files"


def _decided(facts: Facts, call: cst.Call) -> cst.If | cst.IfExp | None:
    """Return the ``if`` that depends on a look at files, where it runs once or in a ``for`` loop."""
    inner: cst.CSTNode = call
    found: cst.If | cst.IfExp | None = None
    for parent in facts.parents(call) if files.is_file_test(facts, call) else ():
        if isinstance(parent, cst.FunctionDef | cst.ClassDef | cst.Lambda | cst.While):
            return None  # in a `while` the ranks may look a different number of times
        if isinstance(parent, cst.If | cst.IfExp) and inner is parent.test and not isinstance(found, cst.If):
            found = parent
        inner = parent
    return None if found is None or facts.word(found.test) else found  # no file decides `A and False`
