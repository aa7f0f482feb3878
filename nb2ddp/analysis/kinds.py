"""Infer what a value is: a trainer, a model, a dataset, a loader, training arguments or an Accelerator.

Values are followed through variables, parameters, the notebook's own functions and classes, and the
methods that return their owner.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import cached_property

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.names import Names
from nb2ddp.analysis.solver import Solver
from nb2ddp.analysis.tree import Tree
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding, Scope, root_of
from nb2ddp.source.cst_nodes import keyword_of, method_of

_Key = cst.BaseExpression | cst.FunctionDef | cst.ClassDef | Binding
_Steps = Generator[_Key, str, str]
_DEPTH = 8  # how many variables and wrappers are followed
_BUILTINS = frozenset(dir(builtins))


class Kinds:
    """Answer what an expression holds, and what a call makes or gets."""

    def __init__(self, tree: Tree, names: Names) -> None:
        self._tree = tree
        self._names = names
        self._kinds = Solver[_Key, str](self._steps, "")
        self._trainer_classes = Solver(self._derives(libraries.is_trainer_class), False)
        self._arguments_classes = Solver(self._derives(libraries.is_arguments_class), False)

    # ---- the kind of a value --------------------------------------------------------------------

    def kind(self, node: cst.CSTNode | None) -> str:
        """Return "trainer", "model", "dataset", "loader", "arguments", "accelerator", or "" for the rest."""
        return self._kinds.solve(node) if isinstance(node, cst.BaseExpression) else ""

    def _steps(self, key: _Key) -> _Steps:
        """Evaluate the kind of an expression, of a bound name, of a function's result, of an instance."""
        match key:
            case Binding():
                return (yield from self._bound(key))
            case cst.FunctionDef():
                return (yield from self._returned(key))
            case cst.ClassDef():
                return (yield from self._instance(key))
            case cst.Name():
                binding = self._names.binding(key)
                return (yield binding) if binding is not None else ""
            case cst.Call():
                return (yield from self._called(key))
            case cst.Attribute(value=value, attr=attr):
                of_trainer = {"model": "model", "args": "arguments"}.get(attr.value, "")
                if of_trainer and (yield value) == "trainer":
                    return of_trainer
                return (yield from self._attribute(key))
            case cst.Subscript(value=value):
                return "dataset" if (yield value) == "dataset" else ""
            case cst.IfExp(body=body, orelse=orelse):
                return (yield body) or (yield orelse)
            case cst.Await(expression=expression):
                return (yield expression)
            case _:
                return ""

    def _attribute(self, node: cst.Attribute) -> _Steps:
        """Evaluate ``self.trainer``, and ``job.trainer`` outside: what the notebook's classes assign to it."""
        if not isinstance(node.value, cst.Name):
            return ""
        kinds = set()
        for target in self._tree.collected.attribute_targets:
            left = self._tree.parent(target)
            around = self._tree.parent(left) if left is not None else None
            if target.attr.value == node.attr.value and target is not node and isinstance(around, cst.Assign):
                kinds.add((yield around.value))
        return kinds.pop() if len(kinds) == 1 and kinds <= {"trainer", "arguments"} else ""

    def _bound(self, binding: Binding) -> _Steps:
        if isinstance(binding.node, cst.Param):
            for value in self.given(binding):
                if kind := (yield value):
                    return kind
            return ""
        if binding.value is None:
            return ""
        call = binding.value
        if (
            isinstance(call, cst.Call)
            and isinstance(call.func, cst.Attribute)
            and method_of(call) == "prepare"
        ):
            position = binding.index or 0  # `a, b = accelerator.prepare(a, b)` gives what it gets
            if position < len(call.args) and (yield call.func.value) == "accelerator":
                return (yield call.args[position].value)
        kind = yield binding.value
        if binding.index:  # `model, tokenizer = ...`: only the first is the model
            return kind if kind == "dataset" else ""
        return kind

    def _called(self, call: cst.Call) -> _Steps:
        name = self._names.qualified(call.func)
        last = method_of(call) or name.rpartition(".")[2]
        if isinstance(call.func, cst.Attribute):
            if last in libraries.DATASET_METHODS and (yield call.func.value) == "dataset":
                return "dataset"
            if last in libraries.MODEL_METHODS and (yield call.func.value) == "model":
                return "model"
        if known := self._known_maker(call, name, last):
            return known
        if name in libraries.PARALLEL_WRAPPERS | libraries.PASSING_FUNCTIONS and call.args:
            return (yield call.args[0].value)
        for binding in self._names.definitions(name) if name else ():
            if not isinstance(binding.scope, cst.ClassDef):
                assert isinstance(binding.node, cst.FunctionDef | cst.ClassDef)
                return (yield binding.node)
        if call.args and name in libraries.DATASET_FUNCTIONS:
            return (yield call.args[0].value)
        if call.args and last in libraries.TRAINER_WRAPPERS:
            first = keyword_of(call, "trainer") or call.args[0].value
            return "trainer" if (yield first) == "trainer" else ""
        return ""

    def _known_maker(self, call: cst.Call, name: str, last: str) -> str:
        """Return the kind that a library's function or class makes, whatever it is called with."""
        if last in ("from_pretrained", "from_config"):
            return "model" if libraries.is_model_class(name.rpartition(".")[0].rpartition(".")[2]) else ""
        of_transformers = name.startswith("transformers.") and name.count(".") == 1
        made = of_transformers and libraries.is_built_model(last)  # LlamaForCausalLM(config)
        if made or last in libraries.MODEL_WRAPPERS or name in libraries.MODULES:
            return "model"
        if name in libraries.DATASET_MAKERS:
            return "dataset"
        if last == "DataLoader":
            return "loader"
        if name in libraries.ACCELERATORS:
            return "accelerator"
        if self.is_trainer_class(call.func):
            return "trainer"
        return "arguments" if self.is_arguments_class(call.func) else ""

    def _instance(self, node: cst.ClassDef) -> _Steps:
        """Evaluate the kind of an instance of a class of the notebook, by the class's bases."""
        for base in node.bases:
            last = self._names.qualified(base.value).rpartition(".")[2]
            if last in ("Module", "PreTrainedModel") or libraries.is_model_class(last):
                return "model"
            of_base = self._names.binding(base.value) if isinstance(base.value, cst.Name) else None
            made_of = of_base.node if of_base is not None else None
            above = isinstance(made_of, cst.ClassDef) and self._tree.order(made_of) < self._tree.order(node)
            if above and (kind := (yield cst.ensure_type(made_of, cst.ClassDef))):
                return kind
        return ""

    def _returned(self, function: cst.FunctionDef) -> _Steps:
        """Evaluate the first kind that a ``return`` of the function gives; of a tuple its first value."""
        for value in _returns(function):
            first = value.elements[0].value if isinstance(value, cst.Tuple) and value.elements else value
            if kind := (yield first):
                return kind
        return ""

    # ---- classes --------------------------------------------------------------------------------

    def is_trainer_class(self, node: cst.CSTNode) -> bool:
        """Return whether an expression names a Transformers-style Trainer, or a subclass in the notebook."""
        return self._trainer_classes.solve(self._names.qualified(node))

    def is_arguments_class(self, node: cst.CSTNode) -> bool:
        """Return whether an expression names a class of training arguments, or a subclass in the notebook."""
        return self._arguments_classes.solve(self._names.qualified(node))

    def _derives(self, is_known: Callable[[str, str], bool]) -> Callable[[str], Generator[str, bool, bool]]:
        """Return the steps that tell whether a qualified name is a known class or has one as its base."""

        def steps(name: str) -> Generator[str, bool, bool]:
            if is_known(name.partition(".")[0], name.rpartition(".")[2]):
                return True
            for binding in self._names.definitions(name):
                for base in binding.node.bases if isinstance(binding.node, cst.ClassDef) else ():
                    above = self._names.qualified(base.value)
                    if above != name and (yield above):
                        return True
            return False

        return steps

    def trainer_class(self, trainer: cst.CSTNode | None) -> str:
        """Return the name of a trainer's class in its library; "" where it cannot be seen."""
        for _ in range(_DEPTH):
            if isinstance(trainer, cst.Name) and (binding := self._names.binding(trainer)) is not None:
                trainer = binding.value
            elif isinstance(trainer, cst.Call):
                name = self._names.qualified(trainer.func).rpartition(".")[2]
                if name not in libraries.TRAINER_WRAPPERS:
                    own = (b.node for b in self._names.definitions(name) if isinstance(b.node, cst.ClassDef))
                    bases = next((node.bases for node in own), ())
                    base = bases[0].value if bases else None
                    return self._names.qualified(base).rpartition(".")[2] if base is not None else name
                first = trainer.args[0].value if trainer.args else None
                trainer = keyword_of(trainer, "trainer") or first
            else:
                break
        return ""

    # ---- arguments ------------------------------------------------------------------------------

    def given(self, binding: Binding) -> Iterator[cst.BaseExpression]:
        """Yield what the notebook's calls of a function pass for one of its parameters."""
        function = binding.scope
        if not isinstance(function, cst.FunctionDef) or self._tree.scope(function) is not None:
            return
        names = [param.name.value for param in function.params.params]
        if binding.name not in names:
            return
        position = names.index(binding.name)
        for call, arguments in self._calls_of(function.name.value):
            given = keyword_of(call, binding.name)
            unnamed = [a.value for a in arguments if a.keyword is None and not a.star]
            if given is None and position < len(unnamed):
                given = unnamed[position]
            if given is not None:
                yield given

    def _calls_of(self, name: str) -> Iterator[tuple[cst.Call, Sequence[cst.Arg]]]:
        """Yield live calls of a function of the notebook, also through Accelerate's ``notebook_launcher``."""
        yield from self._calls_by_name.get(name, ())

    @cached_property
    def _calls_by_name(self) -> dict[str, list[tuple[cst.Call, Sequence[cst.Arg]]]]:
        found: dict[str, list[tuple[cst.Call, Sequence[cst.Arg]]]] = {}
        for call in self._tree.live_calls:
            function: cst.BaseExpression | None = call.func
            arguments = call.args
            if self._names.qualified(call.func) in libraries.NOTEBOOK_LAUNCHERS:
                function, arguments = self.launched(call)
            if isinstance(function, cst.Name):
                found.setdefault(function.value, []).append((call, arguments))
        return found

    def launched(self, call: cst.Call) -> tuple[cst.BaseExpression | None, Sequence[cst.Arg]]:
        """Return the function that ``notebook_launcher(function, args)`` runs, and its arguments."""
        unnamed = [argument.value for argument in call.args if argument.keyword is None and not argument.star]
        function = keyword_of(call, "function") or (unnamed[0] if unnamed else None)
        given = keyword_of(call, "args") or (unnamed[1] if len(unnamed) > 1 else None)
        if isinstance(given, cst.Name) and (binding := self._names.binding(given)) is not None:
            given = binding.value
        elements = given.elements if isinstance(given, cst.Tuple | cst.List) else ()
        return function, [cst.Arg(element.value) for element in elements]

    def star_dicts(self, call: cst.Call) -> list[cst.Call | cst.Dict | None]:
        """Return for each ``**x`` of a call its dict literal or ``dict()``; None where it may be more."""
        found: list[cst.Call | cst.Dict | None] = []
        for argument in call.args:
            if argument.star == "**":
                found += self._passed_on(argument.value) or [self._dict_of(argument.value)]
        return found

    def _passed_on(self, node: cst.BaseExpression) -> list[cst.Call | cst.Dict | None]:
        """Return for ``**kwargs`` of a function of the notebook its one call, and what that unpacks."""
        binding = self._names.binding(node) if isinstance(node, cst.Name) else None
        function = binding.scope if binding is not None else None
        if not isinstance(function, cst.FunctionDef) or binding is None:
            return []
        if function.params.star_kwarg is not binding.node or self._names.is_changed(binding):
            return []
        calls = [call for call, _ in self._calls_of(function.name.value)]
        return [calls[0], *self.star_dicts(calls[0])] if len(calls) == 1 else []

    def _dict_of(self, node: cst.BaseExpression) -> cst.Call | cst.Dict | None:
        if isinstance(node, cst.Name):
            binding = self._names.binding(node)
            if binding is None or self._names.is_changed(binding):
                return None
            if isinstance(binding.node, cst.Param):
                given = [] if binding.node.default is not None else list(self.given(binding))
                inside = any(self._tree.contains(binding.scope or node, value) for value in given)
                return self._dict_of(given[0]) if len(given) == 1 and not inside else None
            if binding.value is None:
                return None
            node = binding.value
        if isinstance(node, cst.Subscript):
            return self._item_of(node)
        if isinstance(node, cst.Dict):
            return node if all(isinstance(e, cst.DictElement) for e in node.elements) else None
        if isinstance(node, cst.Call) and self._names.qualified(node.func) == "dict":
            return node if all(argument.keyword is not None for argument in node.args) else None
        return None

    def _item_of(self, node: cst.Subscript) -> cst.Call | cst.Dict | None:
        """Return the dict that ``CONFIG["training"]`` is, where the text of the notebook decides it."""
        owner = self._dict_of(node.value) if isinstance(node.value, cst.Name | cst.Subscript) else None
        at = node.slice[0].slice if len(node.slice) == 1 else None
        key = cst_nodes.string_value(at.value) if isinstance(at, cst.Index) else None
        if owner is None or key is None:
            return None
        pairs = [
            (cst_nodes.string_value(e.key), e.value)
            for e in (owner.elements if isinstance(owner, cst.Dict) else ())
            if isinstance(e, cst.DictElement)
        ]
        if isinstance(owner, cst.Call):
            pairs = [(a.keyword.value if a.keyword else None, a.value) for a in owner.args]
        found = [value for name, value in pairs if name == key]
        inner = found[-1] if found else None
        return (
            self._dict_of(inner)
            if isinstance(inner, cst.Name | cst.Dict | cst.Call | cst.Subscript)
            else None
        )

    # ---- what a call does -----------------------------------------------------------------------

    def loads_model(self, call: cst.Call) -> bool:
        """Return whether a call makes a model or adapts one; ``model.eval()`` and the like only return it."""
        return method_of(call) not in libraries.MODEL_METHODS and self.kind(call) == "model"

    def loaded_name(self, call: cst.Call) -> str:
        """Return the model's name that ``from_pretrained`` gets; "" where it cannot be seen."""
        unnamed = [argument.value for argument in call.args if argument.keyword is None]
        node = keyword_of(call, "model_name") or (unnamed[0] if unnamed else None)
        if isinstance(node, cst.Name):
            binding = self._names.binding(node)
            node = binding.value if binding is not None else None
        return cst_nodes.string_value(node) or ""

    def joins_group(self, call: cst.Call) -> bool:
        """Return whether a call makes Accelerate join the process group: arguments and trainers do."""
        return self.kind(call) in ("trainer", "arguments", "accelerator")

    def fills_cache(self, call: cst.Call) -> bool:
        """Return whether a call leaves data on disk that a later call of it finds: the Datasets cache, a download."""
        name = self._names.qualified(call.func)
        if name in libraries.CACHED_FUNCTIONS or name in libraries.DATASET_FUNCTIONS:
            return True
        download = keyword_of(call, "download")
        if name.startswith(libraries.DOWNLOADING_MODULES):
            return download is not None and cst_nodes.code_of(download) != "False"
        return (
            isinstance(call.func, cst.Attribute)
            and call.func.attr.value in libraries.CACHED_METHODS
            and self.kind(call.func.value) == "dataset"
        )

    def streams(self, call: cst.Call) -> bool:
        """Return whether a call makes a dataset that is read while it is iterated."""
        streaming = keyword_of(call, "streaming")
        if streaming is not None and cst_nodes.code_of(streaming) != "False":
            return True
        name = self._names.qualified(call.func)
        return "IterableDataset" in name or method_of(call) == "to_iterable_dataset"

    def comes_from(self, node: cst.BaseExpression, package: str) -> bool:
        """Return whether a chain of methods begins at a value of ``package``: ``df[x].sample`` at pandas."""
        return any(name.partition(".")[0] == package for name in self.origins(node))

    def origins(self, node: cst.BaseExpression, depth: int = _DEPTH) -> frozenset[str]:
        """Return the dotted names of the library calls that a value may come from; none where it is not in sight.

        ``trainer`` of ``trainer = L.Trainer()`` comes from ``lightning.Trainer``, and so does ``trainer.model``.
        Values are followed through names, attributes, parameters, and the notebook's functions and classes.
        """
        found: set[str] = set()
        while depth > 0:
            match node:
                case cst.Call(func=func):
                    if made := self._made_by(func, depth):
                        return made | found
                    node = func
                case cst.Attribute(value=value, attr=attr):
                    for target in self._tree.collected.attribute_targets:
                        around = self._tree.parent(self._tree.parent(target) or target)
                        if target.attr.value == attr.value and isinstance(around, cst.Assign):
                            found |= self.origins(around.value, depth - 4)
                    node = value
                case cst.Subscript(value=value) | cst.Await(expression=value):
                    node = value
                case cst.Name():
                    binding = self._names.binding(node)
                    made_here = self._origins_of(binding, depth - 1) if binding is not None else frozenset()
                    return made_here | found
                case _:
                    break
        return frozenset(found)

    def _made_by(self, function: cst.BaseExpression, depth: int) -> frozenset[str]:
        """Return the dotted names of what makes the value of a call; none where its owner does."""
        name, root = self._names.qualified(function), root_of(function)
        if not isinstance(root, cst.Name):
            return frozenset()
        own = self._names.definitions(name) if isinstance(function, cst.Name) else ()
        made: set[str] = set()
        for binding in own:
            if isinstance(binding.node, cst.ClassDef):
                for base in binding.node.bases:
                    made |= self._made_by(base.value, depth - 1) if depth > 0 else frozenset()
            elif isinstance(binding.node, cst.FunctionDef):
                for value in _returns(binding.node):
                    first = (
                        value.elements[0].value if isinstance(value, cst.Tuple) and value.elements else value
                    )
                    made |= self.origins(first, depth - 2)
        if own or self._names.is_imported(root.value):
            return frozenset(made) if own else frozenset({name})
        unbound = root.value not in self._names.bound_names and root.value not in _BUILTINS
        return frozenset(f"{module}.{name}" for module in self._names.stars) if unbound else frozenset()

    def _origins_of(self, binding: Binding, depth: int) -> frozenset[str]:
        found: set[str] = set()
        if isinstance(binding.node, cst.Param):
            for value in self.given(binding):
                found |= self.origins(value, depth - 1)
        elif binding.value is not None:
            value = binding.value
            if isinstance(value, cst.Tuple | cst.List) and (binding.index or 0) < len(value.elements):
                value = value.elements[binding.index or 0].value
            found |= self.origins(value, depth)
        return frozenset(found)

    def is_deleted(self, scope: Scope | None) -> bool:
        """Return whether ``del`` removes a model or a trainer from ``scope``, to free its memory."""
        return any(
            self._tree.scope(name) is scope and self.kind(name) in ("model", "trainer")
            for name in self._deleted_names
        )

    @cached_property
    def _deleted_names(self) -> list[cst.Name]:
        tree = self._tree
        return [
            name
            for name in self._names.name_loads
            if isinstance(tree.parent(name), cst.Del | cst.Element)
            and any(isinstance(parent, cst.Del) for parent in tree.parents(name))
        ]


def _returns(function: cst.FunctionDef) -> list[cst.BaseExpression]:
    """List the values that a function returns."""
    found: list[cst.BaseExpression] = []

    class Returns(cst.CSTVisitor):
        def visit_Return(self, node: cst.Return) -> None:
            if node.value is not None:
                found.append(node.value)

    function.body.visit(Returns())
    return found
