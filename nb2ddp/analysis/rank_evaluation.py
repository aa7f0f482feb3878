"""Evaluate an expression of the notebook as each rank of a run would.

What torchrun tells a rank is known: its rank, the number of ranks, the variables of its environment. So
``rank % 2 == 0`` is true on rank 0 and false on rank 1, ``rank >= 0`` is true on all, and ``rank == 0 and missing`` is
false on rank 1 and open on rank 0. What the notebook's text does not decide is open; nothing is executed.
"""

from __future__ import annotations

import re

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis import reaching
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.rank_returns import collect
from nb2ddp.analysis.rank_values import (
    BUILTINS,
    OPEN,
    SHARE,
    Value,
    applied,
    combined,
    decided_by,
    differ,
    either,
    first_or_last,
    flat,
    indexed,
    joined,
    of_text,
    opened_from,
)
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding, root_of

_SETTINGS = libraries.RANK_PARAMETERS | libraries.RANK_ZERO_TESTS | libraries.WORLD_SIZE_NAMES
_ACCELERATOR = re.compile(r"accelerator\W*$|\bacc\W*$")
_OF_TENSORS = frozenset({"device", "dtype"})  # which say nothing of the rows
WORLD_SIZES = (2, 3, 8)  # a test of rank 5 differs on eight ranks alone
_DIGITS = 20
_DEPTH = 40  # names, calls and operators that are followed
_MENTIONS_RANKS = re.compile(
    r"rank|process_|_process|world_size|global_zero|is_ma|current_device", re.IGNORECASE
)


def mentions_ranks(facts: Facts) -> bool:
    """Return whether a notebook speaks of ranks at all; most do not."""
    return any(_MENTIONS_RANKS.search(cell.source) for cell in facts.cells)


def _makes_accelerator(facts: Facts) -> bool:
    return any(facts.kind(call) == "accelerator" for call in facts.live_calls)


def as_ranks(facts: Facts, world_size: int) -> list[OneRank]:
    """Return one evaluator per rank, cached per notebook."""
    of_size: dict[int, list[OneRank]] = facts.once(_evaluators)
    return of_size[world_size]


def _evaluators(facts: Facts) -> dict[int, list[OneRank]]:
    return {size: [OneRank(facts, rank, size) for rank in range(size)] for size in (1, *WORLD_SIZES)}


class OneRank:
    """Evaluate expressions as one rank of a run of ``size`` ranks would."""

    def __init__(self, facts: Facts, rank: int, size: int) -> None:
        self._facts = facts
        self._rank = rank
        self._size = size
        self._depth = 0
        self._known: dict[cst.CSTNode | Binding, Value] = {}

    def value(self, node: cst.CSTNode) -> Value:
        """Return what an expression may be."""
        if node in self._known:
            return self._known[node]
        if self._depth > _DEPTH:
            return OPEN
        self._known[node] = OPEN  # for an expression that leads back to itself
        self._depth += 1
        found = self._known[node] = self._value(node)
        self._depth -= 1
        return found

    def takes(self, test: cst.BaseExpression, *, where: bool) -> bool:
        """Return whether a branch that is taken where a test is true (false) may be taken."""
        return where in self.value(test).truths

    def _value(self, node: cst.CSTNode) -> Value:
        match node:
            case cst.Name(value="True" | "False" | "None" as name):
                return Value(({"True": True, "False": False, "None": None}[name],))
            case cst.Integer() | cst.Float():
                return Value((node.evaluated_value,)) if len(node.value) < _DIGITS else OPEN
            case cst.SimpleString() | cst.ConcatenatedString():
                text = cst_nodes.string_value(node)
                return OPEN if text is None else Value((text,))
            case cst.FormattedString(parts=parts):
                return combined([self._written(part) for part in parts], joined)
            case cst.Name():
                return self._name(node)
            case cst.Attribute():
                return self._attribute(node)
            case cst.Subscript():
                return self._item(node)
            case cst.Call():
                return self._call(node)
            case cst.NamedExpr(value=value):
                return self.value(value)
            case cst.IfExp():
                return self._one_of_two(node)
            case cst.BooleanOperation(left=left, operator=operator, right=right):
                return first_or_last(self.value(left), self.value(right), isinstance(operator, cst.Or))
            case cst.UnaryOperation(operator=operator, expression=inner):
                return applied(operator, self.value(inner), Value((None,)))
            case cst.BinaryOperation(left=left, operator=operator, right=right):
                return applied(operator, self.value(left), self.value(right))
            case cst.Comparison():
                return self._comparison(node)
            case cst.Tuple(elements=elements) | cst.List(elements=elements) | cst.Set(elements=elements):
                return combined([self.value(element.value) for element in elements], flat)
            case cst.ListComp(for_in=part) | cst.GeneratorExp(for_in=part) | cst.SetComp(for_in=part):
                return SHARE if self._chooses(part) else OPEN
        return OPEN

    def _written(self, part: cst.BaseFormattedStringContent) -> Value:
        """Return the text that a part of an f-string gives."""
        if isinstance(part, cst.FormattedStringText):
            return Value((part.value,))
        if isinstance(part, cst.FormattedStringExpression):
            value = self.value(part.expression)
            plain = part.format_spec is None and part.conversion is None
            return combined([value], str) if plain else Value((), value.by_rank)
        return OPEN

    def _chooses(self, part: cst.CompFor) -> bool:
        """Return whether a comprehension takes other items on each rank."""
        asked = [part.iter, *(condition.test for condition in part.ifs)]
        inner = part.inner_for_in
        return any(self.value(node).by_rank for node in asked) or (inner is not None and self._chooses(inner))

    # ---- operators ------------------------------------------------------------------------------

    def _one_of_two(self, node: cst.IfExp) -> Value:
        test = self.value(node.test)
        ways = ((True, node.body), (False, node.orelse))
        found = either(self.value(result) for where, result in ways if where in test.truths)
        return decided_by(found, [test])

    def _any(self, items: cst.BaseExpression, ends: bool) -> Value:
        """Return the value of ``any(items)``, which an item that is true ends; of ``all(items)``, one that is false."""
        match items:
            case cst.List(elements=elements) | cst.Tuple(elements=elements) | cst.Set(elements=elements):
                found = Value((not ends,))
                for element in elements:
                    found = first_or_last(found, self.value(element.value), ends)
                return combined([found], bool)
            case cst.ListComp(elt=item) | cst.GeneratorExp(elt=item) | cst.SetComp(elt=item):
                return Value((), self.value(item).by_rank or self.value(items).by_rank)
        return combined([self.value(items)], any if ends else all)

    def _comparison(self, node: cst.Comparison) -> Value:
        found: Value | None = None
        left = node.left
        for part in node.comparisons:
            one = self._in_environment(left, part) or applied(
                part.operator, self.value(left), self.value(part.comparator)
            )
            found = one if found is None else combined([found, one], lambda a, b: a and b)
            left = part.comparator
        return found or OPEN

    def _in_environment(self, left: cst.BaseExpression, part: cst.ComparisonTarget) -> Value | None:
        """Return whether a rank's environment has a variable: torchrun sets some."""
        if not isinstance(part.operator, cst.In | cst.NotIn):
            return None
        if self._facts.qualified(part.comparator) != "os.environ":
            return None
        is_set = self._variable(cst_nodes.string_value(left)) is not None
        return Value((isinstance(part.operator, cst.In),)) if is_set else OPEN

    # ---- what torchrun tells --------------------------------------------------------------------

    def _variable(self, name: str | None) -> str | None:
        """Return a variable of the environment that torchrun gives this rank; None for another."""
        if name in libraries.RANK_VARIABLES:
            return str(self._rank)
        return str(self._size) if name in libraries.WORLD_SIZE_VARIABLES else None

    def _told(self, name: str) -> Value | None:
        """Return what a name means that libraries give to a rank, or a test of it; None for another."""
        if name in libraries.RANK_NAMES:
            return Value((self._rank,), by_rank=True)
        if name in libraries.RANK_ZERO_TESTS:
            return Value((self._rank == 0,), by_rank=True)
        if name in libraries.LAST_RANK_TESTS:
            return Value((self._rank == self._size - 1,), by_rank=True)
        return Value((self._size,)) if name in libraries.WORLD_SIZE_NAMES else None

    def _told_one(self, name: str) -> Value | None:
        """Return what an Accelerator of the script tells, which sees one process."""
        if name in libraries.RANK_NAMES:
            return Value((0,))
        if name in libraries.RANK_ZERO_TESTS | libraries.LAST_RANK_TESTS:
            return Value((True,))
        return Value((1,)) if name in libraries.WORLD_SIZE_NAMES else None

    def _of_environment(self, name: str | None) -> Value:
        text = self._variable(name)
        return OPEN if text is None else Value((text,), name in libraries.RANK_VARIABLES)

    # ---- names, attributes, items ---------------------------------------------------------------

    def _name(self, node: cst.Name) -> Value:
        if reaching.is_of_comprehension(self._facts, node):
            return OPEN
        if not self._facts.bindings(node.value):
            return self._told(node.value) or OPEN  # imported from a module of the notebook's own, say
        return self._bound_to(reaching.bindings(self._facts, node, self.takes))

    def _bound_to(self, found: reaching.Reaching) -> Value:
        value = decided_by(either(map(self._bound, found.bindings)), map(self.value, found.tests))
        if len(value.known) != 1 and any(map(self._parts, found.decided)):
            return Value((), by_rank=True, share=value.share)  # it is given on some ranks alone
        return value

    def _parts(self, test: cst.BaseExpression) -> bool:
        return differ(rank.value(test) for rank in as_ranks(self._facts, self._size))

    def _bound(self, binding: Binding) -> Value:
        if binding not in self._known:
            self._known[binding] = OPEN  # for a name that is made from itself
            self._known[binding] = self._bind(binding)
        return self._known[binding]

    def _bind(self, binding: Binding) -> Value:
        match binding.node:
            case cst.Param():
                return self._parameter(binding, binding.node)
            case cst.For(iter=rounds):
                return opened_from(self.value(rounds))
            case cst.AugAssign(value=added):
                return opened_from(self.value(added))
            case cst.WithItem():
                return OPEN
        if binding.value is None:
            return OPEN
        value = self.value(binding.value)
        index = binding.index
        return value if index is None else combined([value], lambda items: indexed(items, index))

    def _parameter(self, binding: Binding, param: cst.Param) -> Value:
        function = binding.scope
        started = isinstance(function, cst.FunctionDef) and reaching.is_started_on_ranks(
            self._facts, function
        )
        if started and binding.name in libraries.RANK_PARAMETERS:
            return Value((self._rank,), by_rank=True)
        given = list(self._facts.given(binding)) or list(reaching.passed(self._facts, binding))
        if given:
            return either(map(self.value, given))
        if param.default is not None and self._is_called_here_alone(function):
            return self.value(param.default)
        return (self._told(binding.name) if binding.name in libraries.RANK_ZERO_TESTS else None) or OPEN

    def _is_called_here_alone(self, function: cst.CSTNode | None) -> bool:
        """Return whether the notebook calls a function, and hands it to no library, which would pass what it likes."""
        if not isinstance(function, cst.FunctionDef) or isinstance(self._facts.scope(function), cst.ClassDef):
            return False
        uses = [use for use in self._facts.loads_of(function.name.value) if not self._facts.is_dead(use)]
        calls = [self._facts.parent(use) for use in uses]
        return bool(uses) and all(
            isinstance(call, cst.Call) and call.func is use for call, use in zip(calls, uses, strict=True)
        )

    def _attribute(self, node: cst.Attribute) -> Value:
        """Return what an attribute is: what the notebook gives one of that name, else what a library means by it."""
        name = node.attr.value
        settings = reaching.settings(self._facts, name) if name in _SETTINGS else ()
        if settings:  # args.local_rank of what the notebook has made itself
            return either(map(self.value, settings))
        fields = [b for b in self._facts.bindings(name) if isinstance(b.scope, cst.ClassDef)]
        values = [self._bound(b) for b in fields if b.value is not None]
        values += [
            self._returned(b.node) for b in fields if isinstance(b.node, cst.FunctionDef)
        ]  # properties
        values += [self.value(value) for value in reaching.attribute_values(self._facts, name)]
        if not values:
            return self._from_library(node.value, name) or OPEN
        return either(values) if any(value.by_rank for value in values) else OPEN

    def _from_library(self, owner: cst.BaseExpression, name: str) -> Value | None:
        """Return what ``state.process_index`` or ``dist.get_rank()`` is; None for a name of another meaning."""
        root = root_of(owner)
        asks = owner if self._facts.kind(owner) == "accelerator" else root
        is_name = isinstance(asks, cst.Name | cst.Call)
        if is_name and self._facts.kind(asks) == "accelerator":
            return self._told_one(name)
        if _ACCELERATOR.search(cst_nodes.code_of(owner)) and self._facts.once(_makes_accelerator):
            return self._told_one(name)  # self.accelerator, kept where its kind is not seen
        return self._told(name) if name in libraries.TOLD_BY_LIBRARIES else None

    def _item(self, node: cst.Subscript) -> Value:
        match node.slice:
            case [cst.SubscriptElement(slice=cst.Index(value=key))]:
                if self._facts.qualified(node.value) == "os.environ":
                    return self._of_environment(cst_nodes.string_value(key))
                if isinstance(found := self._facts.value(node), cst.BaseExpression) and found is not node:
                    return self.value(found)
                given = either(map(self.value, reaching.item_values(self._facts, node)))
                if given.by_rank:
                    return given
                owner, place = self.value(node.value), self.value(key)
                if owner.known:
                    return combined([owner, place], indexed)
                return SHARE if place.by_rank else OPEN
            case [cst.SubscriptElement(slice=cst.Slice() as part)]:  # rows[rank::world_size]
                ends = [end for end in (part.lower, part.upper, part.step) if end is not None]
                chosen = any(self.value(end).by_rank for end in ends)
                return SHARE if chosen else opened_from(self.value(node.value))
        return OPEN

    # ---- calls ----------------------------------------------------------------------------------

    def _call(self, node: cst.Call) -> Value:
        name = self._facts.qualified(node.func)
        arguments = [argument.value for argument in node.args]
        if name in libraries.ENVIRONMENT_READERS and arguments:
            asked = self.value(arguments[0]).known
            return self._of_environment(asked[0]) if len(asked) == 1 and isinstance(asked[0], str) else OPEN
        if name in BUILTINS and not self._facts.bindings(name) and len(node.args) <= 3:
            return combined(list(map(self.value, arguments)), BUILTINS[name])
        if name in ("any", "all") and not self._facts.bindings(name) and len(arguments) == 1:
            return self._any(arguments[0], name == "any")
        own = self._facts.called_functions(node) if not isinstance(node.func, cst.Call) else ()
        own = [f for f in own if f.name.value == name.rpartition(".")[2]] or self._methods(node.func)
        if own:
            return either(map(self._returned, own))
        if isinstance(node.func, cst.Attribute):
            told = self._from_library(node.func.value, node.func.attr.value)
            if told is not None:
                return told
            owner = self.value(node.func.value)
            if owner.known and all(isinstance(item, str) for item in owner.known):
                return of_text(node.func.attr.value, [owner, *map(self.value, arguments)])
        if self._has_share(node, self._facts.method(node) or name.rpartition(".")[2]):
            return SHARE
        return (None if isinstance(node.func, cst.Attribute) else self._told(name.rpartition(".")[2])) or OPEN

    def _methods(self, called: cst.BaseExpression) -> list[cst.FunctionDef]:
        """Return the methods of the notebook's classes that have the name of what is called."""
        if not isinstance(called, cst.Attribute):
            return []
        own = [b for b in self._facts.bindings(called.attr.value) if isinstance(b.scope, cst.ClassDef)]
        return [b.node for b in own if isinstance(b.node, cst.FunctionDef)]

    def _has_share(self, node: cst.Call, name: str) -> bool:
        """Return whether a call gives each rank a share of the data."""
        unnamed = [argument.value for argument in node.args if argument.keyword is None]
        if name in libraries.SHARING_FUNCTIONS:
            asked = [a.value for a in node.args if a.keyword is None or a.keyword.value not in _OF_TENSORS]
            return any(self.value(argument).by_rank for argument in asked)
        if name in libraries.PASSING_ROWS_FUNCTIONS:
            rows = self._facts.keyword(node, "dataset")
            rows = rows if rows is not None else next(iter(unnamed), None)
            return rows is not None and self._is_share(self.value(rows))
        binding = self._facts.binding(node.func) if isinstance(node.func, cst.Name) else None
        if binding is not None and isinstance(binding.node, cst.ClassDef):  # a Dataset of the notebook's own
            return any(
                map(self._is_share, map(self.value, reaching.values_in_class(self._facts, binding.node)))
            )
        if name in libraries.PASSING_ROWS_METHODS and isinstance(node.func, cst.Attribute):
            return self._is_share(self.value(node.func.value))
        return False

    def _is_share(self, value: Value) -> bool:
        return value.share and not value.known

    def _returned(self, function: cst.FunctionDef) -> Value:
        """Return what a function of the notebook returns on this rank."""
        if function not in self._known:
            self._known[function] = OPEN
            found: list[Value] = []
            ends = collect(function.body, self.value, found)
            self._known[function] = either(found if ends else [*found, Value((None,))])
        return self._known[function]
