"""What the notebook's code says: imports, bindings, calls, and what a variable holds.

The only module that resolves LibCST metadata. Rules ask it questions and never look things up
themselves. What `nb2ddp.source.cells` noted in one walk is all that it reads; positions are worked out only
for cells that are asked about.

Names are followed as a notebook runs: cell after cell, top to bottom, the last binding before a use
wins. Inside a function its own bindings come first, then the module's.
"""

from __future__ import annotations

import bisect
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from nb2ddp import libraries
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import (
    Binding,
    CodeCell,
    Collected,
    Place,
    Scope,
    Statement,
    Walker,
    imported_modules,
    root_of,
)


class Facts:
    """Answers about a sequence of cells. Nodes in questions are nodes of the cells' own trees."""

    def __init__(self, cells: Sequence[CodeCell]) -> None:
        self.cells = tuple(cells)
        self._seen = Collected()
        walker = Walker(self._seen)
        self._cell_of: dict[cst.Module, CodeCell] = {}
        for cell in self.cells:
            self._cell_of[cell.module] = cell
            cell.module.visit(walker)
        self._load_orders = [load.order for load in self._seen.loads]
        self._call_orders = [self.order(call) for call in self._seen.calls]
        self._positions: dict[CodeCell, dict[cst.CSTNode, int]] = {}
        self._kinds: dict[cst.CSTNode, str] = {}

    # ---- the tree ---------------------------------------------------------------------------

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        return self._seen.parents.get(node)

    def parents(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """The nodes around ``node``, innermost first, up to the cell's Module."""
        current = self._seen.parents.get(node)
        while current is not None:
            yield current
            current = self._seen.parents.get(current)

    def order(self, node: cst.CSTNode) -> int:
        """A number that grows through the notebook: of two nodes, which comes first."""
        return self._seen.spans[node][0]

    def end(self, node: cst.CSTNode) -> int:
        """The order of the last node inside ``node``."""
        return self._seen.spans[node][1]

    def contains(self, outer: cst.CSTNode, inner: cst.CSTNode) -> bool:
        start, end = self._seen.spans[outer]
        return start <= self.order(inner) <= end

    def statement(self, node: cst.CSTNode) -> Statement:
        """The smallest whole statement around ``node`` that can be moved, wrapped or dropped."""
        current: cst.CSTNode = node
        for parent in self.parents(node):
            if isinstance(parent, cst.Module | cst.IndentedBlock):
                assert isinstance(current, cst.SimpleStatementLine | cst.BaseCompoundStatement)
                return current
            current = parent
        raise ValueError("the node belongs to no statement")

    def statement_in(self, function: cst.FunctionDef | None, node: cst.CSTNode) -> Statement:
        """The statement of a function's own body that ``node`` stands in; of the cell for None."""
        current = node
        for parent in self.parents(node):
            if parent is (function.body if function is not None else None) or isinstance(parent, cst.Module):
                break
            current = parent
        assert isinstance(current, cst.SimpleStatementLine | cst.BaseCompoundStatement)
        return current

    def top_statement(self, node: cst.CSTNode) -> Statement:
        """The statement of the cell itself that ``node`` stands in."""
        return self.statement_in(None, node)

    def cell(self, node: cst.CSTNode) -> CodeCell:
        current = node
        for current in self.parents(node):  # noqa: B007
            pass
        assert isinstance(current, cst.Module)
        return self._cell_of[current]

    def place(self, node: cst.CSTNode) -> Place:
        cell = self.cell(node)
        if cell not in self._positions:
            wrapper = MetadataWrapper(cell.module, unsafe_skip_copy=True)
            ranges = wrapper.resolve(PositionProvider)
            self._positions[cell] = {key: value.start.line for key, value in ranges.items()}
        line = self._positions[cell].get(node, 1)
        return Place(cell.number, cell.python.notebook_line(line))

    def scope(self, node: cst.CSTNode) -> Scope | None:
        """The function, lambda or class body that ``node`` runs in; None at module level."""
        inner = node
        for parent in self.parents(node):
            if isinstance(parent, cst.FunctionDef | cst.ClassDef) and inner is parent.body:
                return parent
            if isinstance(parent, cst.Lambda) and inner is parent.body:
                return parent
            if isinstance(parent, cst.Param):
                inner = parent
            inner = parent
        return None

    @cached_property
    def top_statements(self) -> tuple[Statement, ...]:
        """All statements of all cells, in order."""
        found: list[Statement] = []
        for cell in self.cells:
            found += cell.module.body
        return tuple(found)

    def is_dead(self, node: cst.CSTNode) -> bool:
        """Whether ``node`` stands in an ``if False:`` body."""
        inner = node
        for parent in self.parents(node):
            if isinstance(parent, cst.If) and inner is parent.body and _is_false(parent.test):
                return True
            inner = parent
        return False

    # ---- names --------------------------------------------------------------------------------

    @cached_property
    def bound_names(self) -> frozenset[str]:
        """Every name that the notebook binds anywhere."""
        return frozenset(self._seen.bindings) | frozenset(self._seen.imports)

    @cached_property
    def loaded_names(self) -> frozenset[str]:
        """Every name that the notebook reads anywhere."""
        return frozenset(load.name for load in self._seen.loads)

    def loads_in(self, node: cst.CSTNode) -> frozenset[str]:
        """Names that are read inside ``node``."""
        start, end = self._seen.spans[node]
        low = bisect.bisect_left(self._load_orders, start)
        high = bisect.bisect_right(self._load_orders, end)
        return frozenset(load.name for load in self._seen.loads[low:high])

    def uses(self, name: str, within: cst.CSTNode) -> tuple[cst.Name, ...]:
        """The places inside ``within`` that read ``name``."""
        start, end = self._seen.spans[within]
        return tuple(
            load.node for load in self._seen.loads if load.name == name and start <= load.order <= end
        )

    def is_read_outside(self, name: str, *nodes: cst.CSTNode, until: Statement | None = None) -> bool:
        """Whether a value that ``name`` gets inside ``nodes`` may be read elsewhere, up to ``until``."""
        spans = [self._seen.spans[node] for node in nodes]
        limit = self.end(until) if until is not None else sys.maxsize

        def is_inside(order: int) -> bool:
            return any(start <= order <= end for start, end in spans)

        bound = [(b.order, b.node, b.scope) for b in self.bindings(name)]
        bound += [(i.order, i.node, i.scope) for i in self._seen.import_orders if i.name == name]
        bound.sort(key=lambda item: item[0], reverse=True)
        for load in self._seen.loads:
            if load.name != name or load.order > limit or is_inside(load.order):
                continue
            scope = self.scope(load.node)
            if scope is not None and any(home is scope for _, _, home in bound):
                continue
            for order, node, home in bound:
                if home is not None or (scope is None and order > load.order):
                    continue
                if isinstance(node, cst.Assign | cst.AugAssign) and self.contains(node, load.node):
                    continue  # `x = f(x)` reads the value before
                if is_inside(order):
                    return True
                if scope is None and self._is_certain(node):
                    break  # it has another value by then
        return False

    def _is_certain(self, node: cst.CSTNode) -> bool:
        """Whether a node runs, and runs once, when its cell does."""
        statement = self.statement(node)
        simple = isinstance(statement, cst.SimpleStatementLine | cst.FunctionDef | cst.ClassDef)
        return simple and isinstance(self.parent(statement), cst.Module)

    def binds_in(self, node: cst.CSTNode) -> frozenset[str]:
        """Module-level names that get a value inside ``node``, imports included."""
        start, end = self._seen.spans[node]
        return frozenset(
            name
            for name, bindings in self._seen.bindings.items()
            if any(start <= b.order <= end and b.scope is None for b in bindings)
        ) | frozenset(i.name for i in self._seen.import_orders if start <= i.order <= end and i.scope is None)

    def changes_in(self, node: cst.CSTNode) -> frozenset[str]:
        """Names whose list, dict or set is changed in place inside ``node``."""
        start, end = self._seen.spans[node]
        low = bisect.bisect_left(self._load_orders, start)
        high = bisect.bisect_right(self._load_orders, end)
        return frozenset(load.name for load in self._seen.loads[low:high] if self._changes(load.node))

    def is_read_after(self, name: str, node: cst.CSTNode, until: cst.CSTNode) -> bool:
        """Whether ``name`` is read between the ends of two nodes."""
        start, end = self.end(node), self.end(until)
        return any(load.name == name and start < load.order <= end for load in self._seen.loads)

    def bindings(self, name: str) -> Sequence[Binding]:
        return self._seen.bindings.get(name, ())

    def binding(self, name: cst.Name) -> Binding | None:
        """The binding that a use of a name sees: the last live one before it, innermost scope first."""
        here = self.order(name)
        candidates = self._seen.bindings.get(name.value, ())
        own = scope = self.scope(name)
        while scope is not None:
            local = [b for b in candidates if b.scope is scope]
            if local and (scope is own or not isinstance(scope, cst.ClassDef)):  # methods do not see these
                before = [b for b in local if b.order < here]
                return (before or local)[-1]
            scope = self.scope(scope)
        module_level = [b for b in candidates if b.scope is None and not self.is_dead(b.node)]
        if own is not None:
            return module_level[-1] if module_level else None
        before = [b for b in module_level if b.order < here and not self.contains(_evaluated(b.node), name)]
        return before[-1] if before else None

    def qualified(self, node: cst.BaseExpression | cst.CSTNode) -> str:
        """The dotted name that an expression stands for, through imports; "" where it is none.

        ``FastLanguageModel.from_pretrained`` gives ``unsloth.FastLanguageModel.from_pretrained``, whatever
        it was imported as. A name that is not imported stands for itself.
        """
        match node:
            case cst.Name(value=name):
                targets = self._seen.imports.get(name)
                if targets:
                    return targets[-1]
                bindings = self._seen.bindings.get(name, ())
                if not bindings:
                    for module in self._seen.stars:
                        if name in libraries.STAR_EXPORTS.get(module.partition(".")[0], ()):
                            return f"{module}.{name}"
                alias = bindings[0].value if len(bindings) == 1 else None
                if isinstance(alias, cst.Name | cst.Attribute):
                    root = root_of(alias)
                    if isinstance(root, cst.Name) and root.value in self._seen.imports:
                        return self.qualified(alias)  # Config = trl.SFTConfig
                return name
            case cst.Attribute(value=value, attr=attr):
                inner = self.qualified(value)
                return f"{inner}.{attr.value}" if inner else ""
            case _:
                return ""

    # ---- calls --------------------------------------------------------------------------------

    @property
    def calls(self) -> Sequence[cst.Call]:
        """Every call, in order, dead code included."""
        return self._seen.calls

    @cached_property
    def live_calls(self) -> tuple[cst.Call, ...]:
        return tuple(call for call in self._seen.calls if not self.is_dead(call))

    @property
    def name_loads(self) -> Iterator[cst.Name]:
        """Every place that reads a name, in order."""
        return (load.node for load in self._seen.loads)

    @property
    def loops(self) -> Sequence[cst.For | cst.While]:
        return self._seen.loops

    @property
    def strings(self) -> Sequence[cst.BaseString]:
        """Every string literal that is no docstring."""
        return self._seen.strings

    @property
    def attributes(self) -> Sequence[cst.Attribute]:
        """Every ``a.b``, what is set and dead code included."""
        return self._seen.attributes

    @property
    def attribute_targets(self) -> Sequence[cst.Attribute]:
        """What ``args.x = 1`` sets, dead code included."""
        return self._seen.attribute_targets

    def calls_in(self, node: cst.CSTNode) -> Iterator[cst.Call]:
        start, end = self._seen.spans[node]
        low = bisect.bisect_left(self._call_orders, start)
        high = bisect.bisect_right(self._call_orders, end)
        yield from self._seen.calls[low:high]

    def runs(self, node: cst.CSTNode, wanted: Callable[[cst.Call], bool]) -> bool:
        """Whether running ``node`` runs a call that is ``wanted``, also through the notebook's own functions.

        The bodies of functions and classes that ``node`` only defines do not count.
        """
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            return False
        return self._runs(node, wanted, set())

    def _runs(self, node: cst.CSTNode, wanted: Callable[[cst.Call], bool], seen: set[str]) -> bool:
        scope = self.scope(node) if not isinstance(node, cst.Module) else None
        inside = node if isinstance(node, cst.FunctionDef | cst.ClassDef) else scope
        for call in self.calls_in(node):
            home = self.scope(call)
            if home is not inside and not isinstance(home, cst.Lambda):
                continue
            if self.is_dead(call) and not self.is_dead(node):
                continue
            if wanted(call):
                return True
            for function in self.called_functions(call):
                if function.name.value not in seen:
                    seen.add(function.name.value)
                    if self._runs(function, wanted, seen):
                        return True
        return False

    def called_functions(self, call: cst.Call) -> Iterator[cst.FunctionDef]:
        """Functions of the notebook that ``call`` calls, or is given to call (``dataset.map(f)``)."""
        for expression in (call.func, *(argument.value for argument in call.args)):
            if isinstance(expression, cst.Name):
                for binding in self.bindings(expression.value):
                    if isinstance(binding.node, cst.FunctionDef) and not isinstance(
                        binding.scope, cst.ClassDef
                    ):
                        yield binding.node

    def method(self, call: cst.Call) -> str:
        """The attribute that is called: ``train`` of ``trainer.train()``; "" for a plain function."""
        return call.func.attr.value if isinstance(call.func, cst.Attribute) else ""

    def keyword(self, call: cst.Call, name: str) -> cst.BaseExpression | None:
        for argument in call.args:
            if argument.keyword is not None and argument.keyword.value == name:
                return argument.value
        return None

    def star_dicts(self, call: cst.Call) -> list[cst.Call | cst.Dict | None]:
        """For each ``**x`` of a call the dict literal, or ``dict()``, that it is; None if it may be more."""
        found: list[cst.Call | cst.Dict | None] = []
        for argument in call.args:
            if argument.star == "**":
                found += self._passed_on(argument.value) or [self._dict_of(argument.value)]
        return found

    def _passed_on(self, node: cst.BaseExpression) -> list[cst.Call | cst.Dict | None]:
        """For ``**kwargs`` of a function of the notebook: the one call of it, and what that unpacks."""
        binding = self.binding(node) if isinstance(node, cst.Name) else None
        function = binding.scope if binding is not None else None
        if not isinstance(function, cst.FunctionDef) or binding is None:
            return []
        if function.params.star_kwarg is not binding.node or self._is_changed(binding):
            return []
        calls = [call for call, _ in self._calls_of(function.name.value)]
        return [calls[0], *self.star_dicts(calls[0])] if len(calls) == 1 else []

    def _dict_of(self, node: cst.BaseExpression) -> cst.Call | cst.Dict | None:
        if isinstance(node, cst.Name):
            binding = self.binding(node)
            if binding is None or self._is_changed(binding):
                return None
            if isinstance(binding.node, cst.Param):
                given = [] if binding.node.default is not None else list(self.given(binding))
                inside = any(self.contains(binding.scope or node, value) for value in given)
                return self._dict_of(given[0]) if len(given) == 1 and not inside else None
            if binding.value is None:
                return None
            node = binding.value
        if isinstance(node, cst.Dict):
            return node if all(isinstance(e, cst.DictElement) for e in node.elements) else None
        if isinstance(node, cst.Call) and self.qualified(node.func) == "dict":
            return node if all(argument.keyword is not None for argument in node.args) else None
        return None

    def _is_changed(self, binding: Binding) -> bool:
        """Whether a name's value may be another one, or be changed in place, before it is used."""
        others = [b for b in self.bindings(binding.name) if b.scope is binding.scope and b is not binding]
        if any(not self._is_certain(b.node) for b in (binding, *others)) and others:
            return True
        return any(load.name == binding.name and self._changes(load.node) for load in self._seen.loads)

    def _changes(self, name: cst.Name) -> bool:
        """``x["key"] = 1``, ``x.update(...)`` and ``x |= ...``."""
        around = self.parent(name)
        if isinstance(around, cst.Subscript):
            target = self.parent(around)
            return isinstance(target, cst.AssignTarget | cst.AugAssign | cst.Del)
        if isinstance(around, cst.Attribute):
            return around.attr.value in libraries.CHANGING_METHODS
        return isinstance(around, cst.AugAssign) and around.target is name

    # ---- what a value is ----------------------------------------------------------------------

    def kind(self, node: cst.CSTNode | None) -> str:
        """What a value is: "trainer", "model", "dataset", "loader", "arguments", "accelerator" or ""."""
        if node is None:
            return ""
        if node not in self._kinds:
            self._kinds[node] = self._kind(node, set())
        return self._kinds[node]

    def _kind(self, node: cst.CSTNode | None, seen: set[cst.CSTNode]) -> str:
        if node is None or node in seen:
            return ""
        seen.add(node)
        match node:
            case cst.Name():
                binding = self.binding(node)
                if binding is None:
                    return ""
                if isinstance(binding.node, cst.Param):
                    return next(filter(None, (self._kind(v, seen) for v in self.given(binding))), "")
                if prepared := self._prepared(binding, seen):
                    return self._kind(prepared, seen)
                kind = self._kind(binding.value, seen)
                if binding.index:  # `model, tokenizer = ...`: only the first is the model
                    return kind if kind == "dataset" else ""
                return kind
            case cst.Call():
                return self._call_kind(node, seen)
            case cst.Attribute(value=value, attr=attr):
                owner = self._kind(value, seen)
                return (
                    {"model": "model", "args": "arguments"}.get(attr.value, "") if owner == "trainer" else ""
                )
            case cst.Subscript(value=value):
                return "dataset" if self._kind(value, seen) == "dataset" else ""
            case cst.IfExp(body=body, orelse=orelse):
                return self._kind(body, seen) or self._kind(orelse, seen)
            case cst.Await(expression=expression):
                return self._kind(expression, seen)
            case _:
                return ""

    def _call_kind(self, call: cst.Call, seen: set[cst.CSTNode]) -> str:
        name = self.qualified(call.func)
        last = self.method(call) or name.rpartition(".")[2]
        if isinstance(call.func, cst.Attribute):
            owner = self._kind(call.func.value, seen)
            if owner == "dataset" and last in libraries.DATASET_METHODS:
                return "dataset"
            if owner == "model" and last in libraries.MODEL_METHODS:
                return "model"
        if last == "from_pretrained":
            return "model" if libraries.is_model_class(name.rpartition(".")[0].rpartition(".")[2]) else ""
        if last in libraries.MODEL_WRAPPERS or name in libraries.MODULES:
            return "model"
        if name in libraries.PARALLEL_WRAPPERS and call.args:
            return self._kind(call.args[0].value, seen)
        if name in libraries.DATASET_MAKERS:
            return "dataset"
        if last == "DataLoader":
            return "loader"
        if name in libraries.ACCELERATORS:
            return "accelerator"
        if self.is_trainer_class(call.func):
            return "trainer"
        if self.is_arguments_class(call.func):
            return "arguments"
        for binding in self.bindings(name) if name else ():
            if isinstance(binding.scope, cst.ClassDef):
                continue
            if isinstance(binding.node, cst.ClassDef):
                return self._instance_kind(binding.node)
            if isinstance(binding.node, cst.FunctionDef):
                return self._returned_kind(binding.node, seen)
        if call.args and name in libraries.DATASET_FUNCTIONS:
            return self._kind(call.args[0].value, seen)
        if call.args and last in libraries.TRAINER_WRAPPERS:
            first = self.keyword(call, "trainer") or call.args[0].value
            return "trainer" if self._kind(first, seen) == "trainer" else ""
        return ""

    def given(self, binding: Binding) -> Iterator[cst.BaseExpression]:
        """What the notebook's calls of a function give to one of its parameters."""
        function = binding.scope
        if not isinstance(function, cst.FunctionDef) or self.scope(function) is not None:
            return
        names = [param.name.value for param in function.params.params]
        if binding.name not in names:
            return
        position = names.index(binding.name)
        for call, arguments in self._calls_of(function.name.value):
            given = self.keyword(call, binding.name)
            unnamed = [a.value for a in arguments if a.keyword is None and not a.star]
            if given is None and position < len(unnamed):
                given = unnamed[position]
            if given is not None:
                yield given

    def _calls_of(self, name: str) -> Iterator[tuple[cst.Call, Sequence[cst.Arg]]]:
        """Live calls of a function of the notebook, also through Accelerate's ``notebook_launcher``."""
        for call in self.live_calls:
            if isinstance(call.func, cst.Name) and call.func.value == name:
                yield call, call.args
            elif self.qualified(call.func) in libraries.NOTEBOOK_LAUNCHERS:
                function, given = launched(self, call)
                if isinstance(function, cst.Name) and function.value == name:
                    yield call, given

    def _prepared(self, binding: Binding, seen: set[cst.CSTNode]) -> cst.BaseExpression | None:
        """What went into ``a, b = accelerator.prepare(a, b)`` at this name's place."""
        call = binding.value
        if not isinstance(call, cst.Call) or self.method(call) != "prepare":
            return None
        assert isinstance(call.func, cst.Attribute)
        position = binding.index or 0
        if position >= len(call.args) or self._kind(call.func.value, seen) != "accelerator":
            return None
        return call.args[position].value

    def _instance_kind(self, node: cst.ClassDef) -> str:
        """What an instance of a class of the notebook is, by what the class is made of."""
        for base in node.bases:
            name = self.qualified(base.value)
            last = name.rpartition(".")[2]
            if last in ("Module", "PreTrainedModel") or libraries.is_model_class(last):
                return "model"
            of_base = self.binding(base.value) if isinstance(base.value, cst.Name) else None
            made_of = of_base.node if of_base is not None and of_base.node is not node else None
            above = isinstance(made_of, cst.ClassDef) and self.order(made_of) < self.order(node)
            if above and (kind := self._instance_kind(cst.ensure_type(made_of, cst.ClassDef))):
                return kind
        return ""

    def _returned_kind(self, function: cst.FunctionDef, seen: set[cst.CSTNode]) -> str:
        if function in seen:
            return ""
        seen.add(function)
        returns: list[cst.BaseExpression] = []

        class Returns(cst.CSTVisitor):
            def visit_Return(self, node: cst.Return) -> None:
                if node.value is not None:
                    returns.append(node.value)

        function.body.visit(Returns())
        for value in returns:
            first = value.elements[0].value if isinstance(value, cst.Tuple) and value.elements else value
            if kind := self._kind(first, seen):
                return kind
        return ""

    def is_trainer_class(self, node: cst.CSTNode) -> bool:
        """Whether an expression names a Transformers-style Trainer, or a subclass of one made here."""
        name = self.qualified(node)
        last = name.rpartition(".")[2]
        if libraries.is_trainer_class(name.partition(".")[0], last):
            return True
        return any(
            self.is_trainer_class(base.value)
            for binding in (self.bindings(name) if name else ())
            if isinstance(binding.node, cst.ClassDef)
            for base in binding.node.bases
            if self.qualified(base.value) != name
        )

    def is_arguments_class(self, node: cst.CSTNode) -> bool:
        """Whether an expression names a class of training arguments, or a subclass of one made here."""
        name = self.qualified(node)
        if libraries.is_arguments_class(name.partition(".")[0], name.rpartition(".")[2]):
            return True
        return any(
            self.is_arguments_class(base.value)
            for binding in (self.bindings(name) if name else ())
            if isinstance(binding.node, cst.ClassDef)
            for base in binding.node.bases
            if self.qualified(base.value) != name
        )

    def shown(self, cell: CodeCell) -> cst.BaseExpression | None:
        """The expression whose value the notebook shows below the cell; None where it shows nothing."""
        last = cell.module.body[-1] if cell.module.body else None
        if not isinstance(last, cst.SimpleStatementLine) or not isinstance(last.body[-1], cst.Expr):
            return None
        value = last.body[-1].value
        if isinstance(last.body[-1].semicolon, cst.Semicolon):
            return None  # as people write after a plot
        if isinstance(value, cst.SimpleString | cst.Ellipsis | cst.Yield | cst.Await):
            return None  # a string at the end is a comment, mostly
        if isinstance(value, cst.Call):
            name = self.qualified(value.func)
            called = self.method(value) or name.rpartition(".")[2]
            if (
                called in libraries.SILENT_CALLS
                or called.startswith(("save_", "push_to_hub"))
                or name == "os.system"
            ):
                return None
            root = root_of(value.func)
            if isinstance(root, cst.Call) and self.qualified(root.func) == "get_ipython":
                return None
        return value

    # ---- the run ------------------------------------------------------------------------------

    @cached_property
    def train_calls(self) -> tuple[cst.Call, ...]:
        """Live ``trainer.train()`` and ``unsloth_train(trainer)`` calls, in order."""
        return tuple(call for call in self.live_calls if self.trained(call) is not None)

    def trained(self, call: cst.Call) -> cst.BaseExpression | None:
        """The trainer that a call trains; None where it trains none."""
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "train":
            return call.func.value if self.kind(call.func.value) == "trainer" else None
        if self.qualified(call.func) in libraries.COLLECTIVE_FUNCTIONS:
            unnamed = [a.value for a in call.args if a.keyword is None and not a.star]
            return self.keyword(call, "trainer") or (unnamed[0] if unnamed else None)
        return None

    def trainer_class(self, trainer: cst.CSTNode | None) -> str:
        """The name of a trainer's class, as its library has it; "" where it cannot be seen."""
        for _ in range(8):
            if isinstance(trainer, cst.Name) and (binding := self.binding(trainer)) is not None:
                trainer = binding.value
            elif isinstance(trainer, cst.Call):
                name = self.qualified(trainer.func).rpartition(".")[2]
                if name not in libraries.TRAINER_WRAPPERS:
                    bases = [b.node.bases for b in self.bindings(name) if isinstance(b.node, cst.ClassDef)]
                    return (
                        self.qualified(bases[0][0].value).rpartition(".")[2] if bases and bases[0] else name
                    )
                trainer = self.keyword(trainer, "trainer") or (
                    trainer.args[0].value if trainer.args else None
                )
            else:
                break
        return ""

    def is_collective(self, call: cst.Call) -> bool:
        """Whether a call needs every rank: training and evaluation, never to be gated by rank."""
        method = self.method(call)
        if method in libraries.COLLECTIVE_METHODS and isinstance(call.func, cst.Attribute):
            return self.kind(call.func.value) == "trainer"
        if isinstance(call.func, cst.Attribute) and self.kind(call.func.value) == "accelerator":
            return method not in ("print", "log", "init_trackers")
        if method == "backward":  # once, outside a loop, it shows how gradients are made
            return self.training_loop(call) is not None
        return self.qualified(call.func) in libraries.COLLECTIVE_FUNCTIONS

    def training_loop(self, call: cst.Call) -> cst.For | cst.While | None:
        """The loop in which a call of ``backward()`` stands, or the one that calls its function.

        A function is followed where it is a cell's own, and called at one place.
        """
        loop = self._loop_around(call)
        function = self.scope(call)
        if loop is not None or not isinstance(function, cst.FunctionDef) or self.scope(function) is not None:
            return loop
        name = function.name.value
        uses = [use for use in self.name_loads if use.value == name and not self.is_dead(use)]
        if len(uses) != 1 or len(self.bindings(name)) != 1:
            return None
        site = self.parent(uses[0])
        called = isinstance(site, cst.Call) and site.func is uses[0] and self.scope(site) is None
        return self._loop_around(site) if called and site is not None else None

    def _loop_around(self, node: cst.CSTNode) -> cst.For | cst.While | None:
        return next((p for p in self.parents(node) if isinstance(p, cst.For | cst.While)), None)

    def fills_cache(self, call: cst.Call) -> bool:
        """Whether a call makes or changes a dataset through the cache that Datasets keeps on disk."""
        name = self.qualified(call.func)
        if name in libraries.CACHED_FUNCTIONS or name in libraries.DATASET_FUNCTIONS:
            return True
        return (
            isinstance(call.func, cst.Attribute)
            and call.func.attr.value in libraries.CACHED_METHODS
            and self.kind(call.func.value) == "dataset"
        )

    def runs_once(self, node: cst.CSTNode) -> bool:
        """Whether code stands in a cell itself, in no function and in no loop's body."""
        inner = node
        for parent in self.parents(node):
            if isinstance(parent, cst.FunctionDef | cst.ClassDef | cst.Lambda | cst.While | cst.BaseComp):
                return False
            if isinstance(parent, cst.For) and inner is not parent.iter:
                return False
            inner = parent
        return True

    def streams(self, call: cst.Call) -> bool:
        """Whether a call makes a data set that is read as it comes."""
        streaming = self.keyword(call, "streaming")
        if streaming is not None and cst_nodes.code_of(streaming) != "False":
            return True
        return "IterableDataset" in self.qualified(call.func) or self.method(call) == "to_iterable_dataset"

    def loads_model(self, call: cst.Call) -> bool:
        """Whether a call makes a model or adapts one; ``model.eval()`` and the like only give it back."""
        if self.method(call) in libraries.MODEL_METHODS:
            return False
        return self.kind(call) == "model"

    def loaded_name(self, call: cst.Call) -> str:
        """The model's name that ``from_pretrained`` gets; "" where it cannot be seen."""
        unnamed = [argument.value for argument in call.args if argument.keyword is None]
        node = self.keyword(call, "model_name") or (unnamed[0] if unnamed else None)
        if isinstance(node, cst.Name):
            binding = self.binding(node)
            node = binding.value if binding is not None else None
        return cst_nodes.string_value(node) or ""

    def joins_group(self, call: cst.Call) -> bool:
        """Whether a call makes Accelerate join the process group: arguments and trainers do."""
        return self.kind(call) in ("trainer", "arguments", "accelerator")

    @cached_property
    def collective_statements(self) -> tuple[Statement, ...]:
        """Statements of cells that run something that needs every rank."""
        return tuple(s for s in self.top_statements if self.runs(s, self.is_collective))

    @cached_property
    def last_collective(self) -> Statement | None:
        """After this statement no rank needs another one."""
        return self.collective_statements[-1] if self.collective_statements else None

    def is_after_training(self, node: cst.CSTNode) -> bool:
        """Whether ``node`` runs once training is over, when rank 0 is alone."""
        last = self.last_collective
        return last is not None and self.order(node) > self.end(last)

    def comes_from(self, node: cst.BaseExpression, package: str, depth: int = 3) -> bool:
        """Whether a chain of methods begins at what ``package`` made, as ``df[x].sample`` at pandas."""
        while isinstance(node, cst.Attribute | cst.Call | cst.Subscript):
            if isinstance(node, cst.Call) and self.qualified(node.func).partition(".")[0] == package:
                return True
            node = node.func if isinstance(node, cst.Call) else node.value
        binding = self.binding(node) if isinstance(node, cst.Name) else None
        made = binding.value if binding is not None else None
        return isinstance(made, cst.Call) and depth > 0 and self.comes_from(made, package, depth - 1)

    def is_deleted(self, scope: Scope | None) -> bool:
        """Whether ``del`` takes a model or a trainer away from ``scope``, to free its memory."""
        return any(
            self.kind(load.node) in ("model", "trainer")
            and self.scope(load.node) is scope
            and any(isinstance(parent, cst.Del) for parent in self.parents(load.node))
            and isinstance(self.parent(load.node), cst.Del | cst.Element)
            for load in self._seen.loads
        )

    def our(self, name: str) -> str:
        """A name of the script's own, changed where the notebook uses it for something else."""
        ours = libraries.OUR_IMPORTS.get(name, frozenset())
        taken = name in self._seen.bindings or not ours.issuperset(self._seen.imports.get(name, ()))
        return f"ddp_{name}" if taken else name

    def imports_of(self, package: str) -> tuple[cst.Import | cst.ImportFrom, ...]:
        """The import statements that bring something of ``package``."""
        return tuple(
            node
            for node in self._seen.import_nodes
            if any(name.partition(".")[0] == package for name in imported_modules(node))
        )

    @cached_property
    def uses_unsloth(self) -> bool:
        targets = [*self._seen.stars, *(t for ts in self._seen.imports.values() for t in ts)]
        return any(target.partition(".")[0] in libraries.UNSLOTH_PACKAGES for target in targets)


def _evaluated(node: cst.CSTNode) -> cst.CSTNode:
    """What runs before a binding's name has its value."""
    return node.iter if isinstance(node, cst.For) else node


def launched(facts: Facts, call: cst.Call) -> tuple[cst.BaseExpression | None, Sequence[cst.Arg]]:
    """The function that ``notebook_launcher(function, args)`` runs, and what it gives it."""
    unnamed = [argument.value for argument in call.args if argument.keyword is None and not argument.star]
    function = facts.keyword(call, "function") or (unnamed[0] if unnamed else None)
    given = facts.keyword(call, "args") or (unnamed[1] if len(unnamed) > 1 else None)
    if isinstance(given, cst.Name) and (binding := facts.binding(given)) is not None:
        given = binding.value
    elements = given.elements if isinstance(given, cst.Tuple | cst.List) else ()
    return function, [cst.Arg(element.value) for element in elements]


def _is_false(test: cst.BaseExpression) -> bool:
    match test:
        case cst.Name(value="False" | "None"):
            return True
        case cst.Integer(value="0"):
            return True
        case _:
            return False
