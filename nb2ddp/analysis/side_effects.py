"""Find side effects: what a piece of code changes that outlasts it. Code that is not known counts as an effect.

An iteration has to itself what it has made: a name for an object from outside is that object.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Generator, Iterator, Sequence

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.analysis.solver import Solver
from nb2ddp.analysis.training_loops import names_switch
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding, Scope

# Iterate over their argument, in its order.
PASSING = frozenset("enumerate tqdm zip list tuple reversed track".split())
LIST_METHODS = frozenset(
    "tolist to_list to_dict iterrows itertuples splitlines readlines split items keys values copy".split()
)
# Change nothing, of whatever class the object is.
HARMLESS_METHODS = (
    libraries.TEXT_METHODS | LIST_METHODS | frozenset("lstrip rstrip startswith endswith".split())
)
_CONTAINERS = cst.List | cst.Tuple | cst.Set | cst.Dict | cst.ListComp | cst.SetComp | cst.GeneratorExp
# An expression or a binding, and whether the items of its value are meant, not the value itself.
_Key = tuple[cst.BaseExpression | Binding, bool]
# Return a list, or something else that has the same order on every rank.
_LISTS = frozenset("range trange sorted load loads read_csv read_json read_parquet".split())
# Return a new object, to which there is no other reference.
_FRESH_CALLS = frozenset("dict list set str int float copy.copy copy.deepcopy".split())
_FRESH_METHODS = frozenset("copy decode join strip replace format item".split())
# Return an object that use does not change.
_STEADY = _LISTS | frozenset(
    "from_pretrained from_config get_chat_template pipeline dict list set tuple str int float len join "
    "format compile device GenerationConfig TextStreamer Path tensor zeros ones arange get_peft_model".split()
)
# Have an effect that need not happen on every rank, or that is the same for every iteration.
_HARMLESS = frozenset(
    "print torch.cuda.empty_cache torch.cuda.synchronize gc.collect time.sleep display "
    "IPython.display.display IPython.display.clear_output".split()
)
_HARMLESS_METHODS = frozenset({"eval", "for_inference"})
# Draw or seed random numbers, advance an iterator or a file, end the run, or can do anything.
_STATEFUL = frozenset(
    "next input exit quit sys.exit os._exit exec eval setattr delattr globals locals iter pickle.dump "
    "json.dump get_ipython".split()
)
_STATEFUL_METHODS = frozenset(
    "write writelines writerow writerows read readline send send_message step invoke backward zero_grad "
    "manual_seed seed popleft get_nowait put log add_scalar fast_generate load_adapter load_lora".split()
)
_SEEDING = frozenset({"set_seed", "enable_full_determinism", "seed_everything"})
_BUILT_IN = frozenset({*dir(builtins), "display"})
_DEPTH = 8  # how many times a name is followed to the value that it is bound to


def is_ordered(facts: Facts, node: cst.BaseExpression | None, depth: int = 0) -> bool:
    """Return whether iterating over a value gives the same items in the same order on every rank."""
    if node is None or depth > 8:
        return False

    def ordered(*parts: cst.BaseExpression | None) -> bool:
        return all(is_ordered(facts, part, depth + 1) for part in parts)

    match node:
        case cst.List() | cst.Tuple() | cst.Dict():
            return True
        case cst.ListComp(for_in=part) | cst.GeneratorExp(for_in=part):
            return ordered(part.iter)
        case cst.BinaryOperation(left=left, right=right):
            return ordered(left) and (isinstance(right, cst.Integer) or ordered(right))
        case cst.Name():
            if facts.kind(node) == "dataset":
                return True
            binding = facts.binding(node)
            if binding is None:
                return False
            if isinstance(binding.node, cst.Param):
                given = list(facts.given(binding))
                return bool(given) and ordered(*given)
            return binding.index is None and ordered(binding.value)
        case cst.Subscript(value=value):
            return ordered(value)
        case cst.Call():
            last = facts.qualified(node.func).rpartition(".")[2]
            if facts.kind(node) == "dataset" or last in _LISTS or facts.method(node) in LIST_METHODS:
                return True
            unnamed = cst_nodes.unnamed(node.args)
            if last in ("list", "dict") and not node.args:
                return True
            return last in PASSING and bool(unnamed) and ordered(*(unnamed if last == "zip" else unnamed[:1]))
    return False


class Effects:
    """Decide whether code changes only the lists of ``results``, by appending, and objects that it creates."""

    def __init__(self, facts: Facts, results: Sequence[str]) -> None:
        self._facts = facts
        self._results = frozenset(results)
        self._seen: set[cst.FunctionDef] = set()
        self._objects: Objects | None = None

    def is_contained(self, body: cst.BaseSuite, scope: Scope | None, *, is_function: bool = False) -> bool:
        """Return whether ``body``, of a loop or of a function that the loop calls, changes nothing else."""
        facts = self._facts
        if self._objects is None:  # not a function that the loop calls
            self._objects = Objects(facts, body, self._is_steady_outside)
        if _is_forbidden(facts, body) or (facts.nodes(cst.Return, within=body) and not is_function):
            return False
        for name in facts.changes_in(body) - (frozenset() if is_function else self._results):
            made = [b for b in facts.bindings(name) if b.scope is scope and facts.contains(body, b.node)]
            if not made or not all(
                isinstance(b.node, cst.AugAssign) or _is_fresh(facts, b.value) for b in made
            ):
                return False
        objects = self._objects
        attributes = {node.attr.value for node in facts.nodes(cst.Attribute, within=body)}
        return (
            all(self._is_steady_use(body, objects, use, is_function) for use in facts.name_loads_in(body))
            and all(self._has_no_effect(call) for call in facts.calls_in(body))
            and all(self._runs_only_contained(name) for name in attributes | {"forward", "__call__"})
            and all(self._may_be_dropped(body, line.value) for line in facts.nodes(cst.Expr, within=body))
        )

    def _is_steady_use(self, body: cst.BaseSuite, objects: Objects, use: cst.Name, is_function: bool) -> bool:
        """Return whether a name's value is the same for every iteration, or created by the current one."""
        facts = self._facts
        method, is_item = called_on(facts, use)
        harmless = not method or method in HARMLESS_METHODS
        if facts.comprehension(use) is not None:
            return harmless or objects.is_own(use)
        binding = facts.binding(use)
        if is_function and use.value in self._results and (binding is None or binding.scope is None):
            return False  # the function reads a list that depends on the iterations before
        called = bool(method) and not is_item
        if binding is None:
            imported = use.value in facts.bound_names
            return not called or imported or (method == "()" and use.value in _BUILT_IN)
        if use.value in self._results:
            return True
        if is_item and not harmless and not objects.holds_own(use):
            return False
        if facts.contains(body, binding.node):
            return harmless or is_item or objects.is_own(use)
        if harmless and objects.is_current_item(binding):
            return True
        return self._is_steady_outside(use, called)

    def _is_steady_outside(self, node: cst.BaseExpression, called: bool = True) -> bool:
        """Return whether a value from outside the loop is the same for every iteration."""
        facts = self._facts
        binding = facts.binding(node)
        if isinstance(node, cst.Name) and binding is None and node.value in _BUILT_IN:
            return True
        if binding is not None and isinstance(binding.node, cst.Param):
            given = list(facts.given(binding))
            of_class = isinstance(binding.scope, cst.FunctionDef) and facts.scope(binding.scope) is not None
            return of_class or (bool(given) and all(self._is_steady(value, called) for value in given))
        return self._is_steady(node, called)

    def _is_steady(self, node: cst.BaseExpression | None, called: bool, depth: int = 0) -> bool:
        facts = self._facts
        if depth > _DEPTH:
            return False
        match node:
            case cst.Lambda() | None:
                return False
            case cst.Name():
                binding = facts.binding(node)
                if binding is None:
                    return node.value in facts.bound_names
                if isinstance(binding.node, cst.FunctionDef):
                    return self._is_function_contained(binding.node)
                if isinstance(binding.node, cst.ClassDef | cst.Param):
                    return not called
                if binding.value is None:
                    return not called
                return self._is_steady(binding.value, called, depth + 1)
            case cst.Attribute(value=value) | cst.Subscript(value=value):
                return self._is_steady(value, called, depth + 1)
            case cst.IfExp(body=body, orelse=orelse):
                return all(self._is_steady(part, called, depth + 1) for part in (body, orelse))
            case cst.Call():
                name = facts.qualified(node.func)
                if name == "functools.partial":
                    return False
                if not called or facts.kind(node) in ("model", "dataset"):
                    return True
                last = facts.method(node) or name.rpartition(".")[2]
                return last in _STEADY | LIST_METHODS or libraries.is_model_class(last)
            case _:
                return True

    def _has_no_effect(self, call: cst.Call) -> bool:
        name, method = self._facts.qualified(call.func), self._facts.method(call)
        if name in _STATEFUL or method in _STATEFUL_METHODS or (method.endswith("_") and method[:1] != "_"):
            return False
        if name.startswith(libraries.RANDOM_MODULES) or name.rpartition(".")[2] in _SEEDING:
            return False
        if self._facts.keyword(call, "past_key_values") is not None:
            return False  # the call fills a cache that the next iteration reads
        of_a_name = isinstance(call.func, cst.Attribute) and isinstance(call.func.value, cst.Name)
        if method in libraries.CHANGING_METHODS and not of_a_name:
            return False
        return all(self._is_function_contained(function) for function in self._facts.called_functions(call))

    def _runs_only_contained(self, name: str) -> bool:
        """Return whether all methods of that name in the notebook's classes are free of side effects."""
        methods = [b.node for b in self._facts.bindings(name) if isinstance(b.scope, cst.ClassDef)]
        return all(self._is_function_contained(m) for m in methods if isinstance(m, cst.FunctionDef))

    def _is_function_contained(self, function: cst.FunctionDef) -> bool:
        if function in self._seen:
            return True
        self._seen.add(function)
        switches = all(
            names_switch(d.decorator) or cst_nodes.code_of(d.decorator) == "property"
            for d in function.decorators
        )
        return switches and self.is_contained(function.body, function, is_function=True)

    def _may_be_dropped(self, body: cst.BaseSuite, value: cst.BaseExpression) -> bool:
        """Return whether an expression statement, whose value is dropped, has no lasting effect."""
        facts = self._facts
        if not isinstance(value, cst.Call):
            return isinstance(value, cst.BaseString | cst.Name | cst.Ellipsis)
        if facts.qualified(value.func) in _HARMLESS or facts.method(value) in _HARMLESS_METHODS:
            return True
        if isinstance(value.func, cst.Attribute):
            owner = value.func.value
            if not isinstance(owner, cst.Name) or value.func.attr.value not in libraries.CHANGING_METHODS:
                return False
            made_here = (facts.contains(body, b.node) for b in facts.bindings(owner.value))
            return owner.value in self._results or any(made_here)
        return any(True for _ in facts.called_functions(value))  # `_has_no_effect` has checked them


def _is_fresh(facts: Facts, value: cst.BaseExpression | None) -> bool:
    """Return whether an expression makes a new object, to which there is no other reference."""
    match value:
        case cst.List() | cst.Dict() | cst.Set() | cst.ListComp() | cst.DictComp() | cst.SetComp():
            return True
        case cst.BaseNumber() | cst.BaseString():
            return True
        case cst.Call():
            method = facts.method(value)
            return method in _FRESH_METHODS or facts.qualified(value.func) in _FRESH_CALLS
        case _:
            return False


_DEFINING = (cst.FunctionDef, cst.ClassDef, cst.Import, cst.ImportFrom)
_FORBIDDEN = (cst.Global, cst.Nonlocal, cst.Yield, cst.Await, *_DEFINING)


def _is_forbidden(facts: Facts, body: cst.BaseSuite) -> bool:
    """Return whether a body ends its loop, defines or imports something, or sets what no variable name identifies."""
    if facts.nodes(*_FORBIDDEN, within=body):
        return True
    loops = map(facts.loop, facts.nodes(cst.Break, within=body))
    if any(loop is None or not facts.contains(body, loop) for loop in loops):
        return True
    targets = facts.nodes(cst.AssignTarget, cst.AugAssign, cst.AnnAssign, cst.Del, within=body)
    return any(_reaches_far(node.target) for node in targets)


def _reaches_far(target: cst.CSTNode) -> bool:
    """Match ``a.b = 1`` and ``a[1]["b"] = 1``: no variable name identifies the object that they change."""
    match target:
        case cst.Attribute():
            return True
        case cst.Subscript(value=value):
            return not isinstance(value, cst.Name)
        case cst.Tuple(elements=elements) | cst.List(elements=elements):
            return any(_reaches_far(element.value) for element in elements)
        case _:
            return False


# ---- objects -------------------------------------------------------------------------------------


def called_on(facts: Facts, use: cst.Name) -> tuple[str, bool]:
    """Return the method that is called on a name's value or on a part of it, and whether the part is an item.

    The method is "" if there is none, and "()" if the value itself is called.
    """
    node: cst.CSTNode = use
    is_item = False
    while isinstance(around := facts.parent(node), cst.Attribute | cst.Subscript) and around.value is node:
        is_item |= isinstance(around, cst.Subscript)
        node = around
    if not isinstance(around, cst.Call) or around.func is not node:
        return "", is_item
    return (node.attr.value if isinstance(node, cst.Attribute) else "()"), is_item


class Objects:
    """Decide what values in a loop's body, and in the functions that it calls, are.

    ``is_steady`` tells of an expression outside the loop whether calling it, or its methods, changes nothing.
    """

    def __init__(
        self, facts: Facts, body: cst.CSTNode, is_steady: Callable[[cst.BaseExpression], bool]
    ) -> None:
        self._facts = facts
        self._body = body
        self._is_steady = is_steady
        self._from_outside = Solver[_Key, bool](self._steps, False)

    def is_own(self, node: cst.BaseExpression) -> bool:
        """Return whether an iteration has made the value of an expression, or its use changes nothing."""
        return not self._from_outside.solve((node, False))

    def holds_own(self, node: cst.BaseExpression) -> bool:
        """Return `is_own` of the items of a list, tuple, set or dict, as far as the notebook writes them out."""
        return not self._from_outside.solve((node, True))

    def is_current_item(self, binding: Binding) -> bool:
        """Return whether a binding is that of the loop's variable."""
        return isinstance(binding.node, cst.For) and binding.node.body is self._body

    def _steps(self, key: _Key) -> Generator[_Key, bool, bool]:
        node, items = key
        sources: Iterator[_Key | None]
        if isinstance(node, Binding):
            sources = self._of_binding(node, items)
        else:
            sources = self._of_items(node) if items else self._of_value(node)
        for source in sources:
            if source is None or (yield source):
                return True
        return False

    def _of_value(self, node: cst.BaseExpression) -> Iterator[_Key | None]:
        """Yield what a value is made of; None for an object from outside that use may change."""
        facts = self._facts
        match node:
            case cst.Name():
                part, bound = facts.comprehension(node), self._bound_inside(node)
                if part is not None:
                    yield part.iter, True
                elif bound:
                    yield from ((binding, False) for binding in bound)
                elif not self._is_steady(node):
                    yield None
            case cst.Attribute(value=value) | cst.NamedExpr(value=value):
                yield value, False
            case cst.Subscript(value=value):
                yield value, True
            case cst.IfExp(body=left, orelse=right) | cst.BooleanOperation(left=left, right=right):
                yield left, False
                yield right, False
            case cst.Call() if self._is_inside(node, facts.scope(node)):
                for function in facts.called_functions(node):
                    yield from ((value, False) for value in facts.returned(function))
            case cst.Call():
                if self._makes_object(node) and not self._is_steady(node):
                    yield None

    def _of_items(self, node: cst.BaseExpression) -> Iterator[_Key]:
        """Yield what the items of a value are made of."""
        match node:
            case cst.List(elements=elements) | cst.Tuple(elements=elements) | cst.Set(elements=elements):
                yield from (_item(element.value) for element in elements)
            case cst.Dict(elements=pairs):
                yield from (_item(pair.value) for pair in pairs)
            case cst.ListComp(elt=item) | cst.SetComp(elt=item) | cst.GeneratorExp(elt=item):
                yield _item(item)
            case cst.BinaryOperation(left=left, right=right) | cst.IfExp(body=left, orelse=right):
                yield left, True
                yield right, True
            case cst.Subscript(value=value):
                yield value, True
            case cst.Call(func=cst.Attribute(value=owner)) if self._facts.method(node) in LIST_METHODS:
                yield owner, True
            case cst.Call(args=arguments):
                if self._facts.qualified(node.func).rpartition(".")[2] in PASSING | {"sorted", "set", "iter"}:
                    yield from ((argument.value, True) for argument in arguments)
            case cst.Name() if self._facts.comprehension(node) is None:
                known = self._facts.binding(node)
                bound = self._bound_inside(node) or ([known] if known is not None else [])
                yield from ((binding, True) for binding in bound)

    def _of_binding(self, binding: Binding, items: bool) -> Iterator[_Key]:
        match binding.node:
            case cst.For(iter=iterated):
                yield iterated, True
            case cst.Param(default=default):
                for value in self._facts.given(binding):
                    if items or self._is_inside(value, self._facts.scope(value)):
                        yield value, items
                if default is not None and not items:
                    yield default, False
            case _ if binding.value is not None:
                yield binding.value, items or binding.index is not None

    def _bound_inside(self, name: cst.Name) -> list[Binding]:
        """List the bindings of a name in the loop, or in the function that it runs; none if it has others."""
        known = self._facts.binding(name)
        if known is None or not (self.is_current_item(known) or self._is_inside(known.node, known.scope)):
            return []
        same = [b for b in self._facts.bindings(name.value) if b.scope is known.scope]
        return [b for b in same if self.is_current_item(b) or self._is_inside(b.node, b.scope)]

    def _is_inside(self, node: cst.CSTNode, scope: Scope | None) -> bool:
        """Return whether the loop runs a node: in its body, or in a function that is not around it."""
        if self._facts.contains(self._body, node):
            return True
        return isinstance(scope, cst.FunctionDef) and not self._facts.contains(scope, self._body)

    def _makes_object(self, call: cst.Call) -> bool:
        """Match ``Ids()`` and ``lib.Ids()``: a class, to go by its name if it is not the notebook's."""
        last = self._facts.qualified(call.func).rpartition(".")[2]
        return last[:1].isupper() or any(isinstance(b.node, cst.ClassDef) for b in self._facts.bindings(last))


def _item(node: cst.BaseExpression) -> _Key:
    return node, isinstance(node, _CONTAINERS)
