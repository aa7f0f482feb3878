"""Apply rules to cells: finders look at untouched trees, edits are applied afterwards, all at once.

Because an edit is a function of the updated node, edits of nested nodes compose; several edits of one node
are applied in the order of RULES.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import libcst as cst

from nb2ddp.analysis.facts import Facts
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import Change, Decline, Drop, Edit, Gate, GateKind, Insert, Need, Note, Rule
from nb2ddp.rewriting.runtime_calls import helper
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import CodeCell, Statement

_GATES: dict[GateKind, str] = {
    "rank-zero": "is_main_process",
    "rank-zero-then-wait": "main_process_only",
    "main-first": "main_process_first",
    "in-turn": "in_turn",
}


@dataclass(frozen=True)
class Rewritten:
    """The cells' new code by cell number, and what was done."""

    code: dict[int, str]
    changes: tuple[Change, ...]
    declined: tuple[Change, ...]
    notes: tuple[Change, ...]
    needs: frozenset[Need]


@dataclass
class _Plan:
    """What happens to which nodes."""

    edits: dict[cst.CSTNode, list[Edit]] = field(default_factory=dict)
    inserts: dict[cst.CSTNode, list[Insert]] = field(default_factory=dict)
    gates: dict[cst.CSTNode, Gate] = field(default_factory=dict)
    drops: dict[cst.CSTNode, Drop] = field(default_factory=dict)

    def add(self, finding: Edit | Insert | Gate | Drop, facts: Facts) -> cst.CSTNode | None:
        """Take a finding, and return its node; None where what is around it has a gate already.

        Refuse a statement beside which nothing can be put.
        """
        match finding:
            case Edit(node=at):
                self.edits.setdefault(at, []).append(finding)
            case Insert(statement=at) | Gate(statement=at) | Drop(statement=at) if (
                facts.statement(at) is not at
            ):
                raise ValueError(
                    f"{facts.place(at)}: not a statement of a block, give `facts.statement(node)`"
                )
            case Insert(statement=at):
                self.inserts.setdefault(at, []).append(finding)
            case Drop(statement=at):
                self.drops[at] = finding
            case Gate(statement=at):
                if not self.gates.keys().isdisjoint((at, *facts.parents(at))):
                    return None
                self.gates[at] = finding
        return at


def rewrite(
    facts: Facts, rules: Sequence[Rule], options: Options, earlier: Sequence[Change] = ()
) -> Rewritten:
    """Run every rule over the untouched cells, then apply what they found; ``earlier``: what was changed before.

    Raises:
        ValueError: a rule found something about a statement that no block has: an ``elif``, a part of ``if a: b``.
    """
    plan, touched = _Plan(), set[CodeCell]()
    changes = [*earlier]
    declined: list[Change] = []
    notes: list[Change] = []
    needs: set[Need] = set()
    trains = facts.last_collective is not None
    for rule in (rule for rule in rules if trains or not rule.of_training):
        for finding in rule.find(facts, options):
            match finding:
                case Need():
                    needs.add(finding)
                case Decline(why=why, node=node):
                    declined.append(Change(rule.name, facts.place(node) if node else None, why))
                case Note(why=why, node=node, data=data):
                    # once in a notebook, where it is so first
                    if not any(note.why == why and note.rule == rule.name for note in notes):
                        notes.append(Change(rule.name, facts.place(node) if node else None, why, data))
                case _ if at := plan.add(finding, facts):
                    touched.add(facts.cell(at))
                    data = finding.data if isinstance(finding, Insert) else None
                    changes.append(Change(rule.name, facts.place(at), finding.why, data))
    code = {}
    for cell in facts.cells:
        module = cell.module.visit(_Applier(plan, facts)) if cell in touched else cell.module
        code[cell.number] = module.code
    ordered = tuple(sorted(changes, key=lambda c: (c.place.cell, c.place.line) if c.place else (0, 0)))
    return Rewritten(code, ordered, tuple(declined), tuple(notes), frozenset(needs))


def rewrite_first(facts: Facts, rule: Rule, options: Options) -> tuple[Facts, tuple[Change, ...]]:
    """Apply a rule before the others look: return the facts of the code that it makes, and what it changed."""
    if all(isinstance(found, Decline | Note) for found in rule.find(facts, options)):
        return facts, ()
    made = rewrite(facts, [rule], options)
    cells = [cell.with_text(made.code[cell.number]) for cell in facts.cells]
    return Facts.that_train(cells, facts.folders, sharded=options.strategy == "fsdp"), made.changes


class _Applier(cst.CSTTransformer):
    def __init__(self, plan: _Plan, facts: Facts) -> None:
        super().__init__()
        self._plan = plan
        self._facts = facts

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode:
        if isinstance(original_node, cst.Module | cst.IndentedBlock):
            assert isinstance(updated_node, cst.Module | cst.IndentedBlock)
            updated_node = self._body(original_node, updated_node)
        for edit in self._plan.edits.get(original_node, ()):
            updated_node = edit.rewrite(updated_node)
            if (
                isinstance(original_node, cst.BaseExpression)
                and not cst_nodes.code_of(original_node)[0].isalpha()
            ):
                try:
                    self._facts.statement(original_node).deep_replace(original_node, updated_node)
                except cst.CSTValidationError:  # `if(x)or(y):`, where a name needs a space before it
                    updated_node = updated_node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
        return updated_node

    def _body(
        self, original: cst.Module | cst.IndentedBlock, updated: cst.Module | cst.IndentedBlock
    ) -> cst.Module | cst.IndentedBlock:
        plan = self._plan
        if not any(s in plan.inserts or s in plan.gates or s in plan.drops for s in original.body):
            return updated
        body: list[Statement] = []
        orphans: list[cst.EmptyLine] = []  # comments of dropped statements, on their way to the next one
        for group in _groups(original.body, updated.body, plan):
            before_group: list[Statement] = []
            inside: list[Statement] = []
            after_group: list[Statement] = []
            for old, new in group.pairs:
                assert isinstance(new, Statement)
                inserts = plan.inserts.get(old, [])
                before_group += _parsed(insert.code for insert in inserts if insert.where == "before")
                after_group += _parsed(insert.code for insert in inserts if insert.where == "after")
                if old in plan.drops:
                    if not plan.drops[old].with_comments:
                        orphans += new.leading_lines
                    if comment := plan.drops[old].comment:
                        orphans.append(cst.EmptyLine(comment=cst.Comment(f"# nb2ddp: {comment}")))
                    continue
                inside.append(new.with_changes(leading_lines=(*orphans, *new.leading_lines)))
                orphans = []
            if inside and group.gate is not None:
                inside = self._gated(group.gate, inside)
            if before_group and inside:
                # the comments above a statement stay above what is put before it
                lines = (*inside[0].leading_lines, *before_group[0].leading_lines)
                before_group[0] = before_group[0].with_changes(leading_lines=lines)
                inside[0] = inside[0].with_changes(leading_lines=())
            body += [*before_group, *inside, *after_group]
        if isinstance(updated, cst.Module):
            return updated.with_changes(body=body, footer=(*orphans, *updated.footer))
        if not body:
            body = list(cst_nodes.statements("pass"))
        return updated.with_changes(body=body, footer=(*orphans, *updated.footer))

    def _gated(self, gate: Gate, body: list[Statement]) -> list[Statement]:
        note = f"nb2ddp: {gate.why}"
        function = helper(self._facts, _GATES[gate.kind])
        if gate.kind == "rank-zero":
            return [cst_nodes.block_under(f"if {function}:", body, note)]
        if gate.kind != "rank-zero-then-wait":
            return [cst_nodes.block_under(f"with {function}():", body, note)]
        is_main = self._facts.our("is_main")
        inner = cst_nodes.block_under(f"if {is_main}:", body, "")
        return [cst_nodes.block_under(f"with {function}() as {is_main}:", [inner], note)]


@dataclass
class _Group:
    gate: Gate | None
    pairs: list[tuple[cst.CSTNode, cst.CSTNode]]


def _groups(original: Sequence[cst.CSTNode], updated: Sequence[cst.CSTNode], plan: _Plan) -> list[_Group]:
    """Neighbouring statements under one kind of gate, in order; inserts end a group."""

    def is_beside(where: str, node: cst.CSTNode) -> bool:
        return any(insert.where == where for insert in plan.inserts.get(node, ()))

    groups: list[_Group] = []
    for old, new in zip(original, updated, strict=True):
        gate, last = plan.gates.get(old), groups[-1] if groups else _Group(None, [])
        is_alike = gate is not None and last.gate is not None and gate.kind == last.gate.kind
        if is_alike and not is_beside("after", last.pairs[-1][0]) and not is_beside("before", old):
            last.pairs.append((old, new))
        else:
            groups.append(_Group(gate, [(old, new)]))
    return groups


def _parsed(codes: Iterable[str]) -> list[Statement]:
    return [statement for code in codes for statement in cst_nodes.statements(code)]
