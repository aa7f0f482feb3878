"""Follow values through the notebook: what a name, an attribute, an item, a parameter or a call's result may be.

The def-use graph of all cells. It knows no library and no kind of value: what else asks where a value comes from
(`kinds`, `calls`, and questions such as `outside`, `ranks` and `files`) asks here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import cached_property
from typing import TypeVar

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.names import Names
from nb2ddp.analysis.solver import Solver
from nb2ddp.analysis.tree import grouped
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding, root_of
from nb2ddp.source.cst_nodes import keyword_of, string_value, unnamed

_MANY = 12  # values that a use of a name may see
_MOST = 40  # assignments of one name that are looked at
# Functions that name a variable of the environment, and whether they only read it.
_ENVIRONMENT = {"os.environ.get": True, "os.getenv": True} | dict.fromkeys(
    "os.environ.setdefault os.environ.pop os.putenv os.unsetenv".split(), False
)
_Key = cst.BaseExpression | cst.Param
_Steps = Generator[_Key, cst.BaseExpression | None, cst.BaseExpression | None]
_DictLike = cst.Call | cst.Dict
_Target = TypeVar("_Target", bound=cst.CSTNode)


class Flow(Names):
    """Answer what reaches an expression. Nodes in questions are nodes of the cells' own trees."""

    # ---- names ----------------------------------------------------------------------------------

    def bound(self, node: cst.BaseExpression | None) -> cst.BaseExpression | None:
        """Return what a name was bound to last, or what holds that; any other expression as it is."""
        if not isinstance(node, cst.Name):
            return node
        binding = self.binding(node)
        return binding.value if binding is not None else None

    def reaching(self, name: cst.Name) -> tuple[Binding, ...]:
        """Return the assignments that a use of a name may see, the last first, that no branch rules out."""
        last = self.binding(name)
        candidates = self._candidates(name, last) if last is not None else []
        if last is None or len(candidates) > _MOST:
            return ()
        found: list[Binding] = []
        for binding in candidates:
            found.append(binding)
            if self._has_run(binding, name):
                break
        # `rank = 0` below `except KeyError:`, to which a rank does not come, counts where there is nothing else
        kept = [b for b in found if self.around(b.node, cst.ExceptHandler) is None] or found or [last]
        return tuple(kept) if len(kept) <= _MANY else ()

    def _candidates(self, name: cst.Name, last: Binding) -> list[Binding]:
        """Return the assignments of a name in its scope that may come before a use, the last first."""
        here = self.order(name)
        same = [b for b in self.bindings(name.value) if b.scope is last.scope and not self.is_dead(b.node)]
        same.sort(key=lambda b: b.order, reverse=True)
        if self.scope(name) is not last.scope:
            return same  # a function may run at any time
        loops = [loop for loop in self.loops(name) if self.scope(loop) is last.scope]
        assigns = (b for b in same if isinstance(b.node, cst.Assign | cst.AnnAssign | cst.AugAssign))
        own = [b for b in assigns if self.contains(b.node, name)]  # `x` on the right of `x = f(x)`
        later = [b for b in same if b.order > here or b in own]  # which a later round reads
        before = [b for b in same if b not in later]
        sure = [b.node for b in before if self._has_run(b, name)]
        rounds = ((b, next((loop for loop in loops if self.contains(loop, b.node)), None)) for b in later)
        again = [b for b, of in rounds if of and not any(self.contains(of, node) for node in sure)]
        return [*again, *before]

    def _has_run(self, binding: Binding, name: cst.Name) -> bool:
        """Return whether an assignment has run before a use: no branch and no loop is around it alone."""
        of_itself = isinstance(binding.node, cst.Assign | cst.AnnAssign) and self.contains(binding.node, name)
        if of_itself or isinstance(binding.node, cst.AugAssign) or binding.order > self.order(name):
            return False
        inner: cst.CSTNode = binding.node
        for parent in self.parents(binding.node):
            if isinstance(parent, cst.FunctionDef | cst.ClassDef | cst.Lambda):
                break
            block = isinstance(parent, cst.For | cst.While | cst.Try | cst.ExceptHandler | cst.MatchCase)
            block |= isinstance(parent, cst.With) and "suppress" in cst_nodes.code_of(parent.items[0])
            if block and not self.contains(parent, name):
                return False
            if isinstance(parent, cst.If) and inner is not parent.test and not self.contains(inner, name):
                return False
            inner = parent
        return True

    # ---- attributes and items -------------------------------------------------------------------

    def assigned(self, name: str) -> Sequence[cst.BaseExpression]:
        """List what the notebook assigns to attributes of a name, whatever has them: ``self.rank = ...``, setattr."""
        return self._attribute_values.get(name, ())

    @cached_property
    def _attribute_values(self) -> dict[str, list[cst.BaseExpression]]:
        found = [(target.attr.value, value) for target, value in self._with_values(self.attributes)]
        for call in self.live_calls:
            if self.qualified(call.func) == "setattr" and len(call.args) == 3:
                found.append((string_value(call.args[1].value) or "", call.args[2].value))
            names = self.fields_of(call)
            found += zip(names, unnamed(call.args), strict=False)
            found += ((name, given) for name in names if (given := keyword_of(call, name)) is not None)
        return grouped(found)

    def fields(self, name: str) -> list[Binding]:
        """List where the bodies of classes bind a name: ``rank = 0`` and ``def rank(self)``."""
        return [b for b in self.bindings(name) if isinstance(b.scope, cst.ClassDef)]

    def item_values(self, item: cst.Subscript) -> Iterator[cst.BaseExpression]:
        """Yield what an item with this key is given: in ``cfg["rank"] = ...``, and in ``cfg = {"rank": ...}``."""
        key, owner = key_of(item), cst_nodes.code_of(item.value)
        if key is None:
            return
        yield from (v for of, v in self._items if key_of(of) == key and cst_nodes.code_of(of.value) == owner)
        for binding in self.bindings(owner):
            items = dict_items(binding.value) if self._is_dict(binding.value) else None
            if items and key in items:
                yield items[key]

    def environment(self, *names: str) -> Iterator[tuple[cst.Subscript | cst.Call, str, bool]]:
        """Yield where variables of the environment, or these, are named: the item or call, the name, if it reads."""
        for node in self.nodes(cst.Subscript, cst.Call):
            if isinstance(node, cst.Subscript):
                is_target = isinstance(self.parent(node), cst.AssignTarget | cst.AugAssign | cst.Del)
                reads = not is_target if self.qualified(node.value) == "os.environ" else None
                name = key_of(node)
            else:
                reads = _ENVIRONMENT.get(self.qualified(node.func))
                name = string_value(cst_nodes.given(node, 0, "key"))
            if reads is not None and (name in names or not names):
                yield node, name or "", reads

    @cached_property
    def _items(self) -> list[tuple[cst.Subscript, cst.BaseExpression]]:
        return list(self._with_values(self.nodes(cst.Subscript)))

    def _with_values(self, nodes: Sequence[_Target]) -> Iterator[tuple[_Target, cst.BaseExpression]]:
        """Yield the live nodes that are assigned to, by themselves or in a tuple, with their values."""
        for node in nodes:
            around = self.parent(node)
            outer = self.parent(around) if around is not None else None
            if isinstance(around, cst.AssignTarget) and isinstance(outer, cst.Assign):
                if not self.is_dead(node):
                    yield node, outer.value
            elif isinstance(around, cst.Element) and isinstance(outer, cst.Tuple):
                match self.parent(self.parent(outer) or outer):
                    case cst.Assign(value=cst.Tuple(elements=values) as whole) if whole is not outer:
                        if len(values) == len(outer.elements):
                            yield node, values[list(outer.elements).index(around)].value

    # ---- functions ------------------------------------------------------------------------------

    def returned(self, function: cst.FunctionDef) -> list[cst.BaseExpression]:
        """List the values that a function returns, not those of functions in it."""
        own = (r.value for r in self.nodes(cst.Return, within=function.body) if self.scope(r) is function)
        return [value for value in own if value is not None]

    def passes(
        self, function: cst.FunctionDef, name: str, call: cst.Call, arguments: Sequence[cst.Arg] | None = None
    ) -> cst.BaseExpression | None:
        """Return what a call of a function passes for one of its parameters, ``self`` not counted."""
        if (given := keyword_of(call, name)) is not None:
            return given
        names = [param.name.value for param in function.params.params]
        if isinstance(self.scope(function), cst.ClassDef) or self.is_put_into_class(function):
            del names[:1]
        values = unnamed(call.args if arguments is None else arguments)
        return values[names.index(name)] if name in names[: len(values)] else None

    def given(self, binding: Binding) -> Iterator[cst.BaseExpression]:
        """Yield what the calls of a function of a cell, of a class or of a method pass for one of its parameters."""
        function = binding.scope
        for call, arguments in self._calls_into(function):
            assert isinstance(function, cst.FunctionDef)
            if (value := self.passes(function, binding.name, call, arguments)) is not None:
                yield value

    def _calls_into(self, function: cst.CSTNode | None) -> Sequence[tuple[cst.Call, Sequence[cst.Arg]]]:
        """List the calls that give a function of a cell, a method, or the ``__init__`` of a class, its arguments."""
        if not isinstance(function, cst.FunctionDef):
            return ()
        home = self.scope(function)
        made = home if isinstance(home, cst.ClassDef) and function.name.value == "__init__" else function
        name, is_put = made.name.value, self.is_put_into_class(function)
        if self.scope(made) is not None or is_put:
            is_one = len(self.fields(name)) == 1 or is_put  # a method of one class
            return self.calls_of(f".{name}") if is_one else ()
        return (*self.calls_of(name), *self._partials.get(name, ()))

    def calls_of(self, name: str) -> Sequence[tuple[cst.Call, Sequence[cst.Arg]]]:
        """List live calls of a function, or ``.method``, by name, and what they pass; also by ``notebook_launcher``."""
        return self._calls_by_name.get(name, ())

    @cached_property
    def _calls_by_name(self) -> dict[str, list[tuple[cst.Call, Sequence[cst.Arg]]]]:
        found: dict[str, list[tuple[cst.Call, Sequence[cst.Arg]]]] = {}
        for call in self.live_calls:
            function: cst.BaseExpression | None = call.func
            arguments = call.args
            if self.qualified(call.func) in libraries.NOTEBOOK_LAUNCHERS:
                function, arguments = self.launched(call)
            if isinstance(function, cst.Name | cst.Attribute):
                name = function.value if isinstance(function, cst.Name) else f".{function.attr.value}"
                found.setdefault(name, []).append((call, arguments))
        return found

    @cached_property
    def _partials(self) -> dict[str, list[tuple[cst.Call, Sequence[cst.Arg]]]]:
        """List by the name of a function where ``partial(f, x)`` gives it arguments before it is called."""
        named = (call for call in self.live_calls if self.qualified(call.func) == "functools.partial")
        return grouped((self.qualified(c.args[0].value), (c, c.args[1:])) for c in named if c.args)

    def launched(self, call: cst.Call) -> tuple[cst.BaseExpression | None, Sequence[cst.Arg]]:
        """Return the function that ``notebook_launcher(function, args)`` runs, and its arguments."""
        given = self.bound(cst_nodes.given(call, 1, "args"))
        elements = given.elements if isinstance(given, cst.Tuple | cst.List) else ()
        return cst_nodes.given(call, 0, "function"), [cst.Arg(element.value) for element in elements]

    # ---- dicts and literals ---------------------------------------------------------------------

    def star_dicts(self, call: cst.Call) -> list[_DictLike | None]:
        """Return for each ``**x`` of a call its dict literal or ``dict()``; None where it may be more."""
        found: list[_DictLike | None] = []
        for argument in call.args:
            if argument.star == "**":
                made = self.value(argument.value)
                known = made if isinstance(made, cst.Dict | cst.Call) and self._is_dict(made) else None
                found += self._passed_on(argument.value) or [known]
        return found

    def _passed_on(self, node: cst.BaseExpression) -> list[_DictLike | None]:
        """Return for ``**kwargs`` of a function of the notebook its one call, and what that unpacks."""
        match self.binding(node):
            case Binding(scope=cst.FunctionDef(params=params, name=name)) as binding:
                calls = [call for call, _ in self.calls_of(name.value)]
                if params.star_kwarg is binding.node and not self.is_changed(binding) and len(calls) == 1:
                    return [calls[0], *self.star_dicts(calls[0])]
        return []

    def _is_dict(self, node: cst.BaseExpression | None) -> bool:
        """Match a dict literal and ``dict(a=1)``, with no ``**`` in it."""
        if isinstance(node, cst.Dict):
            return all(isinstance(element, cst.DictElement) for element in node.elements)
        of_dict = isinstance(node, cst.Call) and self.qualified(node.func) == "dict"
        return of_dict and all(a.keyword is not None for a in cst.ensure_type(node, cst.Call).args)

    def value(self, node: cst.BaseExpression | None) -> cst.BaseExpression | None:
        """Return the literal, call or imported name that an expression stands for; None where that is open.

        Followed are names with one certain value, parameters, attributes of the notebook's own classes, items
        of dict literals, and conditional expressions whose condition is a literal; others are returned.
        """
        return None if node is None else self._literals.solve(node)

    @cached_property
    def _literals(self) -> Solver[_Key, cst.BaseExpression | None]:
        return Solver(self._literal_steps, None)

    def _literal_steps(self, node: _Key) -> _Steps:
        match node:
            case cst.Name(value="True" | "False" | "None"):
                return node
            case cst.Param():
                return (yield from self._of_calls(node))
            case cst.Name():
                binding = self.binding(node)
                if binding is None:
                    return node if self.is_imported(node.value) else None
                if binding.index is not None or self.is_changed(binding):
                    return None
                source = binding.node if isinstance(binding.node, cst.Param) else binding.value
                return None if source is None else (yield source)
            case cst.Attribute(value=value, attr=cst.Name(value=name)):
                root = root_of(node)
                if isinstance(root, cst.Name) and (yield root) is root:
                    return node  # of a module: torch.float16
                return (yield from self._attribute(value, name))
            case cst.Subscript(value=value) if (text := key_of(node)) is not None:
                owner = yield value
                item = (dict_items(owner) or {}).get(text) if self._is_dict(owner) else None
                return None if item is None else (yield item)
            case cst.Subscript(slice=[cst.SubscriptElement(slice=cst.Index())]):
                return None
            case cst.IfExp(test=test, body=body, orelse=orelse):
                decided = yield test
                if not isinstance(decided, cst.Name) or decided.value not in ("True", "False", "None"):
                    return node
                return (yield body if decided.value == "True" else orelse)
        return node

    def _of_calls(self, param: cst.Param) -> _Steps:
        """Follow a parameter to the one value that all calls pass for it."""
        binding = next(b for b in self.bindings(param.name.value) if b.node is param)
        given, default = list(self.given(binding)), param.default
        some = given and len(given) == len(self._calls_into(binding.scope))
        if isinstance(default, cst.BaseExpression) and not some:
            given.append(default)
        values = []
        for value in given:
            values.append((yield value))
        same = len({cst_nodes.code_of(value) for value in values if value is not None}) == 1
        return values[0] if same and None not in values else None

    def _attribute(self, owner: cst.BaseExpression, name: str) -> _Steps:
        """Follow ``Config.x`` and ``config.x`` to ``x = ...`` in the body of the notebook's own class."""
        binding = self.binding(owner if isinstance(owner, cst.Name) else (yield owner))
        if binding is not None and isinstance(binding.value, cst.Call):  # an instance
            if binding.value.args or not isinstance(binding.value.func, cst.Name):
                return None
            binding = self.binding(binding.value.func)
        own = binding.node if binding is not None else None
        values = [b.value for b in self.fields(name) if b.scope is own]
        set_later = any(target.attr.value == name for target in self.attribute_targets)
        return None if len(values) != 1 or values[0] is None or set_later else (yield values[0])

    def is_switched_off(self, node: cst.CSTNode) -> bool:
        """Return whether a node stands below ``if FP8:``, where the notebook has ``FP8 = False``, or in its else."""
        inner = node
        for parent in self.parents(node):
            match parent:
                case cst.If(test=test, body=body) | cst.IfExp(test=test, body=body) if inner is not test:
                    if self.word(test) == str(inner is not body):
                        return True
            inner = parent
        return False

    def word(self, test: cst.BaseExpression) -> str:
        """Return "True" or "False" where literals decide a test: ``FP8``, ``A or B``, ``backend == "torch"``."""
        match test:
            case cst.BooleanOperation(left, operator, right):
                words, decides = {self.word(left), self.word(right)}, str(isinstance(operator, cst.Or))
                return decides if decides in words else words.pop() if len(words) == 1 else ""
            case cst.UnaryOperation(cst.Not(), inner):
                return {"True": "False", "False": "True"}.get(self.word(inner), "")
            case cst.Comparison(left, [cst.ComparisonTarget(cst.Equal(), right)]):
                texts = [string_value(self.value(side)) for side in (left, right)]
                return "" if None in texts else str(texts[0] == texts[1])
        decided = self.value(test)
        return decided.value.replace("None", "False") if isinstance(decided, cst.Name) else ""

    def switch(self, call: cst.Call, name: str, default: bool = False) -> set[bool]:
        """Return what a switch of a call may be, on or off: both where it cannot be seen."""
        may_have, node = self.argument(call, name)
        value = self.value(node)
        word = value.value if isinstance(value, cst.Name | cst.Integer) else ""
        if not may_have or word in ("None", "0"):
            return {default and not may_have}
        return {word == "True"} if word in ("True", "False") else {True, False}

    def argument(self, call: cst.Call, name: str) -> tuple[bool, cst.BaseExpression | None]:
        """Return whether a call may get ``name``, and the expression that it gets, also through ``**x``.

        ``(True, None)``: it may, and what it gets cannot be seen.
        """
        if (given := keyword_of(call, name)) is not None:
            return True, given
        for unpacked in self.star_dicts(call):
            items = dict_items(unpacked) if unpacked is not None else None
            if items is None:
                return True, None
            if name in items:
                return True, items[name]
        return False, None


def key_of(item: cst.Subscript) -> str | None:
    """Return the text between the brackets of ``cfg["rank"]``; None for another index."""
    match item.slice:
        case [cst.SubscriptElement(slice=cst.Index(value=key))]:
            return string_value(key)
    return None


def pairs_of(node: cst.BaseExpression | None) -> list[tuple[str | None, cst.BaseExpression]]:
    """List the keys and values of a dict literal or of a call's keywords; None for a key that is no literal."""
    if isinstance(node, cst.Call):
        return [(a.keyword.value, a.value) for a in node.args if a.keyword is not None]
    elements = node.elements if isinstance(node, cst.Dict) else ()
    return [(string_value(e.key) if isinstance(e, cst.DictElement) else None, e.value) for e in elements]


def item_of(node: cst.BaseExpression | None, name: str) -> cst.BaseExpression | None:
    """Return the value of a key of a dict literal, or of a call's keyword."""
    return next((value for key, value in pairs_of(node) if key == name), None)


def dict_items(node: cst.BaseExpression | None) -> dict[str, cst.BaseExpression] | None:
    """Return the items of a dict literal, or a call's keyword arguments; None where a key is no literal."""
    pairs = pairs_of(node)
    items = {key: value for key, value in pairs if key is not None}
    return None if any(key is None for key, _ in pairs) else items
