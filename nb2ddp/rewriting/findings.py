"""What a rule may find, and the form of a rule.

A rule yields `Edit`s (a node and a function of its *updated* form), statement-level `Insert`s, `Gate`s
and `Drop`s, `Decline`s, `Note`s, and `Need`s (what the head of the script has to hold). Because an edit is a
function, edits of nested nodes compose; several edits of one node are applied in the order of RULES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options, Strategy
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Place, Statement

GateKind = Literal["rank-zero", "rank-zero-then-wait", "main-first", "in-turn"]


@dataclass(frozen=True)
class Batch:
    """The notebook's batch in numbers, which `share_batch` splits over the ranks.

    ``generations``: completions of one prompt, where a step takes whole groups of them. ``in_turns``: the batch stays
    the notebook's, and the ranks compute its micro-batches in turns.
    """

    per_device: int
    accumulation: int
    generations: int = 1
    in_turns: bool = False

    @classmethod
    def of(cls, *codes: str, in_turns: bool = False) -> Batch | None:
        """Return the batch that code gives in numbers; None where a part of it is known only at run time."""
        if not all(map(str.isdigit, codes)):
            return None
        per_device, accumulation, *rest = map(int, codes)
        return cls(per_device, accumulation, rest[0] if rest else 1, in_turns)


@dataclass(frozen=True)
class TooLarge:
    """The model does not fit on the GPUs: the strategy that makes room."""

    strategy: Strategy


Data = Batch | TooLarge


@dataclass(frozen=True, eq=False)
class Edit:
    """Replace ``node`` by ``rewrite(updated node)``."""

    node: cst.CSTNode
    why: str
    rewrite: Callable[[cst.CSTNode], cst.CSTNode]

    @classmethod
    def to(cls, node: cst.CSTNode, why: str, code: str) -> Edit:
        """Replace ``node`` by ``code``, which keeps nothing of it."""
        return cls(node, why, partial(cst_nodes.replaced, code=code))

    @classmethod
    def inside(cls, node: cst.CSTNode, why: str, function: str) -> Edit:
        """Put ``node`` into a call of ``function``, or in place of ``_`` in ``function(x, _)``."""
        return cls(node, why, partial(cst_nodes.wrapped, function=function))

    @classmethod
    def choosing(cls, node: cst.CSTNode, why: str, test: str, other: str) -> Edit:
        """Replace ``node`` by ``node if test else other``."""

        def chosen(node: cst.CSTNode) -> cst.CSTNode:
            assert isinstance(node, cst.BaseExpression)
            whole = cst_nodes.parenthesised(node) if isinstance(node, cst.IfExp | cst.Lambda) else node
            return cst.IfExp(test=cst_nodes.expression(test), body=whole, orelse=cst_nodes.expression(other))

        return cls(node, why, chosen)

    @classmethod
    def items(cls, node: cst.CSTNode, why: str, items: dict[str, str], comment: str = "") -> Edit:
        """Give a call these keywords, or a dict literal these items, in place of the values that it has."""

        def given(node: cst.CSTNode) -> cst.CSTNode:
            if isinstance(node, cst.Dict):
                return cst_nodes.with_dict_items(node, items)
            for name, value in items.items():
                node = cst_nodes.with_keyword(cst.ensure_type(node, cst.Call), name, value, comment)
            return node

        return cls(node, why, given)


@dataclass(frozen=True, eq=False)
class Insert:
    """Put ``code`` on lines of its own before or after ``statement``."""

    statement: Statement
    where: Literal["before", "after"]
    code: str
    why: str
    data: Data | None = None


@dataclass(frozen=True, eq=False)
class Gate:
    """Indent ``statement`` under ``if ddp.is_main_process:``, ``with ddp.main_process_first():`` or the like.

    Neighbours of one kind share a block.
    """

    statement: Statement
    kind: GateKind
    why: str


@dataclass(frozen=True, eq=False)
class Drop:
    """Take ``statement`` out; the comments above it stay unless ``with_comments``, and ``comment`` says why."""

    statement: Statement
    why: str
    with_comments: bool = False
    comment: str = ""


@dataclass(frozen=True, eq=False)
class Decline:
    """This notebook cannot be converted safely: what, and what to do instead."""

    why: str
    node: cst.CSTNode | None = None


@dataclass(frozen=True, eq=False)
class Note:
    """Something the user should know; nothing is changed for it."""

    why: str
    node: cst.CSTNode | None = None
    data: Data | None = None


@dataclass(frozen=True)
class Need:
    """Something that the head of the script must hold: a __future__ import, or an argument of `ddp.init`."""

    kind: Literal["from __future__", "loads_share"]
    value: str


Finding = Edit | Insert | Gate | Drop | Decline | Note | Need


@dataclass(frozen=True)
class Rule:
    """One kind of change. ``name`` is kebab-case and the same as the file's; ``doc`` its docstring.

    ``balanced`` says that it is also for one process that spreads the model over the GPUs, ``of_training`` that it asks
    nothing of a notebook without training.
    """

    name: str
    doc: str
    find: Callable[[Facts, Options], Iterable[Finding]]
    balanced: bool = False
    of_training: bool = False


@dataclass(frozen=True)
class Change:
    """One thing that was changed, or declined or noted, and where; ``data`` is its figures, if it has any."""

    rule: str
    place: Place | None
    why: str
    data: Data | None = None
