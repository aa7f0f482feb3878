"""Answer the rules' questions about a notebook's code: the one object that they ask.

The answers come from five parts, each built on those before it: `tree` (where a node stands), `names`
(what a name is bound to), `kinds` (what a value is), `execution` (what runs, and when), `values` (literals).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import libcst as cst

from nb2ddp.analysis.execution import Execution
from nb2ddp.analysis.kinds import Kinds
from nb2ddp.analysis.names import Names
from nb2ddp.analysis.tree import Tree
from nb2ddp.analysis.values import Values
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import CodeCell, Statement

Answer = TypeVar("Answer")


class Facts:
    """Answer questions about a sequence of cells. Nodes in questions are nodes of the cells' own trees.

    Each attribute set below is the method of that part, documented there.
    """

    def __init__(self, cells: Sequence[CodeCell], *, sharded: bool = False) -> None:
        """Read the cells. ``sharded``: a Trainer shards its model, which needs every rank from then on."""
        self._sharded = sharded
        self._tree = Tree(cells)
        self._names = Names(self._tree)
        self._kinds = Kinds(self._tree, self._names)
        self._execution = Execution(self._tree, self._names, self._kinds, sharded=sharded)
        self._answers: dict[object, Any] = {}
        self.cells = self._tree.cells
        self._ask_tree(self._tree)
        self._ask_names(self._names)
        self._ask_kinds(self._kinds)
        self._ask_execution(self._execution)
        values = Values(self._tree, self._names, self._kinds)
        self.value = values.value
        self.argument = values.argument

    def _ask_tree(self, tree: Tree) -> None:
        self.parent = tree.parent
        self.parents = tree.parents
        self.order = tree.order
        self.end = tree.end
        self.contains = tree.contains
        self.is_dead = tree.is_dead
        self.statement = tree.statement
        self.statement_in = tree.statement_in
        self.top_statement = tree.top_statement
        self.scope = tree.scope
        self.cell = tree.cell
        self.place = tree.place
        self.calls_in = tree.calls_in

    def _ask_names(self, names: Names) -> None:
        self.definitions = names.definitions
        self.bindings = names.bindings
        self.binding = names.binding
        self.bindings_in = names.bindings_in
        self.binds_in = names.binds_in
        self.changes_in = names.changes_in
        self.changes_first = names.changes_first
        self.loads_in = names.loads_in
        self.loads_of = names.loads_of
        self.name_loads_in = names.name_loads_in
        self.uses = names.uses
        self.is_read_after = names.is_read_after
        self.is_read_outside = names.is_read_outside
        self.imports_of = names.imports_of
        self.qualified = names.qualified
        self.our = names.our

    def _ask_kinds(self, kinds: Kinds) -> None:
        self.kind = kinds.kind
        self.is_trainer_class = kinds.is_trainer_class
        self.is_arguments_class = kinds.is_arguments_class
        self.trainer_class = kinds.trainer_class
        self.given = kinds.given
        self.star_dicts = kinds.star_dicts
        self.loads_model = kinds.loads_model
        self.loaded_name = kinds.loaded_name
        self.joins_group = kinds.joins_group
        self.fills_cache = kinds.fills_cache
        self.streams = kinds.streams
        self.comes_from = kinds.comes_from
        self.origins = kinds.origins
        self.is_deleted = kinds.is_deleted
        self.launched = kinds.launched
        self.method = cst_nodes.method_of
        self.keyword = cst_nodes.keyword_of

    def _ask_execution(self, execution: Execution) -> None:
        self.runs = execution.runs
        self.called_functions = execution.called_functions
        self.callers = execution.callers
        self.runs_once = execution.runs_once
        self.shown = execution.shown
        self.trained = execution.trained
        self.training_loop = execution.training_loop
        self.is_collective = execution.is_collective
        self.gathers = execution.gathers
        self.is_sharded = execution.is_sharded
        self.is_after_training = execution.is_after_training

    def once(self, question: Callable[[Facts], Answer]) -> Answer:
        """Return ``question(self)``, worked out the first time: for questions about the whole notebook."""
        if question not in self._answers:
            self._answers[question] = question(self)
        answer: Answer = self._answers[question]
        return answer

    def sharded(self) -> Facts:
        """Return the facts of the same cells for a model that the Trainer shards."""
        return self if self._sharded else Facts(self.cells, sharded=True)

    # ---- what the whole notebook has ------------------------------------------------------------

    @property
    def top_statements(self) -> tuple[Statement, ...]:
        """List the statements of all cells, in order."""
        return self._tree.top_statements

    @property
    def calls(self) -> Sequence[cst.Call]:
        """List every call, in order, dead code included."""
        return self._tree.collected.calls

    @property
    def live_calls(self) -> tuple[cst.Call, ...]:
        """List the calls outside dead code, in order."""
        return self._tree.live_calls

    @property
    def loops(self) -> Sequence[cst.For | cst.While]:
        """List every loop, in order."""
        return self._tree.collected.loops

    @property
    def strings(self) -> Sequence[cst.BaseString]:
        """List every string literal that is no docstring."""
        return self._tree.collected.strings

    @property
    def attributes(self) -> Sequence[cst.Attribute]:
        """List every ``a.b``, targets of assignments and dead code included."""
        return self._tree.collected.attributes

    @property
    def attribute_targets(self) -> Sequence[cst.Attribute]:
        """List what ``args.x = 1`` sets, dead code included."""
        return self._tree.collected.attribute_targets

    @property
    def bound_names(self) -> frozenset[str]:
        """Collect every name that the notebook binds anywhere."""
        return self._names.bound_names

    def names_at(self, node: cst.CSTNode) -> frozenset[str]:
        """Collect the names that have a value where ``node`` runs: in a function, all that the notebook binds."""
        return self._names.names_at(node)

    @property
    def loaded_names(self) -> frozenset[str]:
        """Collect every name that the notebook reads anywhere."""
        return self._names.loaded_names

    @property
    def name_loads(self) -> Iterator[cst.Name]:
        """Yield every place that reads a name, in order."""
        return self._names.name_loads

    @property
    def uses_unsloth(self) -> bool:
        """Tell whether Unsloth, or a fork that kept its names, is imported."""
        return self._names.uses_unsloth

    @property
    def train_calls(self) -> tuple[cst.Call, ...]:
        """List the live ``trainer.train()`` and ``unsloth_train(trainer)`` calls, in order."""
        return self._execution.train_calls

    @property
    def last_collective(self) -> Statement | None:
        """Return the last statement that runs a collective call: after it no rank needs another."""
        return self._execution.last_collective


def launched(facts: Facts, call: cst.Call) -> tuple[cst.BaseExpression | None, Sequence[cst.Arg]]:
    """Return the function that ``notebook_launcher(function, args)`` runs, and its arguments."""
    return facts.launched(call)
