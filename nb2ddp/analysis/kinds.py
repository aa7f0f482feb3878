"""Infer what a value is: a trainer, a model, a dataset, a loader, training arguments or an Accelerator.

Values are followed through variables, parameters, the notebook's own functions and classes, and the
methods that return their owner.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from functools import cached_property

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.flow import Flow
from nb2ddp.analysis.solver import Solver
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding, CodeCell, Scope, root_of
from nb2ddp.source.cst_nodes import is_word, keyword_of, method_of

Key = cst.BaseExpression | cst.FunctionDef | cst.ClassDef | Binding
_Steps = Generator[Key, str, str]
_BUILTINS = frozenset(dir(builtins))
_GIVE_BACK = libraries.PARALLEL_WRAPPERS | libraries.PASSING_FUNCTIONS | libraries.DATASET_FUNCTIONS
_MODULES = ("Module", "LightningModule", "PreTrainedModel")


class Kinds(Flow):
    """Answer what an expression holds, and what a call makes or gets."""

    def __init__(self, cells: Sequence[CodeCell]) -> None:
        super().__init__(cells)
        self._kinds = Solver[Key, str](self._steps, "")
        self._origins = Solver[Key, frozenset[str]](self._origin_steps, frozenset())
        self._classes_of = Solver[str, frozenset[str]](self._class_name_steps, frozenset())

    # ---- the kind of a value --------------------------------------------------------------------

    def kind(self, node: cst.CSTNode | None) -> str:
        """Return "trainer", "lightning", "model", "dataset", "loader", "arguments", "accelerator", or ""."""
        return self._kinds.solve(node) if isinstance(node, cst.BaseExpression) else ""

    def _steps(self, key: Key) -> _Steps:
        """Evaluate the kind of an expression, of a bound name, of a function's result, of an instance."""
        match key:
            case Binding():
                return (yield from self._kind_bound(key))
            case cst.FunctionDef():
                for value in self.returned(key):  # of a tuple the first value
                    if kind := (yield part(value)):
                        return kind
            case cst.ClassDef():
                bases = (name.rpartition(".")[2] for name in self.bases(key))
                return "model" if any(n in _MODULES or libraries.is_model_class(n) for n in bases) else ""
            case cst.Name():
                binding = self.binding(key)
                return (yield binding) if binding is not None else ""
            case cst.Call():
                return (yield from self._kind_called(key))
            case cst.Attribute(value=value, attr=attr):
                of_trainer = {"model": "model", "args": "arguments"}.get(attr.value, "")
                if of_trainer and (yield value) == "trainer":
                    return of_trainer
                return (yield from self._kind_attribute(key))
            case cst.Subscript(value=value):
                return "dataset" if (yield value) == "dataset" else ""
            case cst.IfExp(body=body, orelse=orelse):
                return (yield body) or (yield orelse)
            case cst.Await(expression=expression):
                return (yield expression)
        return ""

    def _kind_attribute(self, node: cst.Attribute) -> _Steps:
        """Evaluate ``self.trainer``, and ``job.trainer`` outside: what the notebook's classes assign to it."""
        if not isinstance(node.value, cst.Name):
            return ""
        home, values = self.around(node, cst.ClassDef), self.assigned(node.attr.value)
        own = [v for v in values if home is not None and self.contains(home, v) and not is_word(v, "None")]
        kind = yield from self._common(own if own and node.value.value == "self" else values)
        return kind if kind in ("trainer", "lightning", "arguments") else ""

    def _common(self, keys: Iterable[Key]) -> _Steps:
        """Evaluate the kind that several values have; "" where they differ."""
        kinds = set()
        for key in keys:
            kinds.add((yield key))
        return kinds.pop() if len(kinds) == 1 else ""

    def _kind_bound(self, binding: Binding) -> _Steps:
        if isinstance(binding.node, cst.Param):
            for value in self.given(binding):
                if kind := (yield value):
                    return kind
            return ""
        if binding.value is None:
            return ""
        call = binding.value
        owner = self.owner(call) if isinstance(call, cst.Call) and method_of(call) == "prepare" else None
        if isinstance(call, cst.Call) and owner is not None:
            position = binding.index or 0  # `a, b = accelerator.prepare(a, b)` gives what it gets
            if position < len(call.args) and (yield owner) == "accelerator":
                return (yield call.args[position].value)
        kind = yield binding.value
        return kind if kind == "dataset" or not binding.index else ""  # `model, tokenizer = ...`: the first

    def _kind_called(self, call: cst.Call) -> _Steps:
        name = self.qualified(call.func)
        last = method_of(call) or name.rpartition(".")[2]
        if isinstance(call.func, cst.Attribute):
            if last in libraries.DATASET_METHODS and (yield call.func.value) == "dataset":
                return "dataset"
            if last in libraries.MODEL_METHODS and (yield call.func.value) == "model":
                return "model"
        if known := self._known_maker(call, name, last):
            return known
        if name in _GIVE_BACK and call.args:
            return (yield call.args[0].value)
        for binding in self.definitions(name) if name else ():
            if not isinstance(binding.scope, cst.ClassDef):
                assert isinstance(binding.node, cst.FunctionDef | cst.ClassDef)
                return (yield binding.node)
        of_methods = (b.node for b in self.fields(last) if isinstance(b.node, cst.FunctionDef))
        if isinstance(call.func, cst.Attribute):
            made = yield from self._common(of_methods)
            if made in ("trainer", "lightning"):
                return made
        if call.args and last in libraries.TRAINER_WRAPPERS:
            return "trainer" if (yield keyword_of(call, "trainer") or call.args[0].value) == "trainer" else ""
        return ""

    def _known_maker(self, call: cst.Call, name: str, last: str) -> str:
        """Return the kind that a library's function or class makes, whatever it is called with."""
        if last in ("from_pretrained", "from_config"):
            return "model" if libraries.is_model_class(name.rpartition(".")[0].rpartition(".")[2]) else ""
        of_transformers = name.startswith("transformers.") and name.count(".") == 1
        made = of_transformers and libraries.is_built_model(last)  # LlamaForCausalLM(config)
        made |= last in libraries.MODEL_WRAPPERS or name in libraries.MODULES
        kinds = {"model": made, "dataset": name in libraries.DATASET_MAKERS, "loader": last == "DataLoader"}
        kinds |= {"accelerator": name in libraries.ACCELERATORS, "trainer": self.is_trainer_class(call.func)}
        kinds |= {"lightning": self.is_lightning_class(call.func)}
        kinds |= {"arguments": self.is_arguments_class(call.func)}
        return next((kind for kind, is_one in kinds.items() if is_one), "")

    # ---- classes --------------------------------------------------------------------------------

    def is_trainer_class(self, node: cst.CSTNode) -> bool:
        """Return whether an expression names a Transformers-style Trainer, or a subclass in the notebook."""
        named = self._classes_of.solve(self.qualified(node))
        return _is_any(libraries.is_trainer_class, named) or not named.isdisjoint(self._derived_trainers)

    @cached_property
    def _derived_trainers(self) -> frozenset[str]:
        """Collect the Trainers of other modules, by their names or train(), that are given Transformers' arguments."""
        made = ((call.func, cst_nodes.given(call, 1, "args")) for call in self.live_calls)
        known = ((f, self.origins(arguments)) for f, arguments in made if arguments is not None)
        given = (f for f, names in known if _is_any(libraries.is_arguments_class, names))
        named = (name for f in given for name in self._classes_of.solve(self.qualified(f)))
        trained = {n for c in self.live_calls if method_of(c) == "train" for n in self.origins(c.func)}
        return frozenset(n for n in named if "." in n and (n.endswith("Trainer") or n in trained))

    def is_lightning_class(self, node: cst.CSTNode) -> bool:
        """Return whether an expression names the Trainer of Lightning, or a subclass in the notebook."""
        return any(map(libraries.LIGHTNING_TRAINER.match, self._classes_of.solve(self.qualified(node))))

    def is_arguments_class(self, node: cst.CSTNode) -> bool:
        """Return whether an expression names a class of training arguments, or a subclass in the notebook."""
        return _is_any(libraries.is_arguments_class, self._classes_of.solve(self.qualified(node)))

    def bases(self, definition: cst.ClassDef) -> frozenset[str]:
        """Return the dotted names of the libraries' classes that a class derives from, also through the notebook's."""
        named = (self._classes_of.solve(self.qualified(base.value)) for base in definition.bases)
        return frozenset().union(*named)

    def _class_name_steps(self, name: str) -> Generator[str, frozenset[str], frozenset[str]]:
        """Evaluate the libraries' classes that a class's name stands for: its own, or those that it derives from."""
        own = [b.node for b in self.definitions(name) if isinstance(b.node, cst.ClassDef)]
        found = frozenset() if own else frozenset({name})
        for base in (base for definition in own for base in definition.bases):
            if (above := self.qualified(base.value)) != name:
                found |= yield above
        return found

    def trainer_class(self, trainer: cst.CSTNode | None) -> str:
        """Return the name of a trainer's class in its library; "" where it cannot be seen."""
        made = sorted(self.origins(trainer)) if isinstance(trainer, cst.BaseExpression) else ()
        return next((n.rpartition(".")[2] for n in made if _is_any(libraries.is_trainer_class, {n})), "")

    # ---- what a call does -----------------------------------------------------------------------

    def loads_model(self, call: cst.Call) -> bool:
        """Return whether a call makes a model or adapts one; ``model.eval()`` and the like only return it."""
        return method_of(call) not in libraries.MODEL_METHODS and self.kind(call) == "model"

    def changes_model(self, call: cst.Call) -> bool:
        """Match ``net.half()`` and the like, which return the model that they change, and ``self.anything.eval()``."""
        sets_mode = method_of(call) == "eval" and not call.args
        return sets_mode or (self.kind(call) == "model" and not self.loads_model(call))

    def loaded_name(self, call: cst.Call) -> str:
        """Return the model's name that a call loads, also by its configuration; "" where it cannot be seen."""
        keywords = ("model_name", "pretrained_model_name_or_path", "model_id", "config")
        named = (value for name in keywords if (value := self.argument(call, name)[1]) is not None)
        value = self.value(next(named, cst_nodes.given(call, 0)))
        if isinstance(value, cst.Call) and method_of(value) == "from_pretrained":
            return self.loaded_name(value)
        return cst_nodes.string_value(value) or ""

    def shows(self, call: cst.Call) -> bool:
        """Return whether a call prints or logs what it gets."""
        name, method = self.qualified(call.func), method_of(call)
        return name in libraries.SHOWING_FUNCTIONS or method in libraries.SHOWING_METHODS

    def function_names(self, call: cst.Call) -> frozenset[str]:
        """Return the dotted names that a library's function may have, also by a star import; none of a method."""
        direct = isinstance(call.func, cst.Name) and not self.definitions(call.func.value)
        return self.origins(call) if direct or self.is_of_import(call.func) else frozenset()

    def fetches_artifact(self, call: cst.Call) -> bool:
        """Match ``run.use_artifact("rows").download()`` of W&B, whose run is disabled on all ranks but rank 0."""
        return method_of(call) == "download" and self.comes_from(call.func, "wandb")

    def comes_from(self, node: cst.BaseExpression, package: str) -> bool:
        """Return whether a chain of methods begins at a value of ``package``: ``df[x].sample`` at pandas."""
        return any(name.partition(".")[0] == package for name in self.origins(node))

    def origins(self, node: cst.BaseExpression) -> frozenset[str]:
        """Return the dotted names of the library calls that a value may come from; none where it is not in sight.

        ``trainer`` of ``trainer = L.Trainer()`` comes from ``lightning.Trainer``, and so does ``trainer.model``.
        Values are followed through names, attributes, parameters, and the notebook's functions and classes.
        """
        return self._origins.solve(node)

    def _origin_steps(self, key: Key) -> Generator[Key, frozenset[str], frozenset[str]]:
        found: frozenset[str] = frozenset()
        for source in self._made_of(key):
            found |= source if isinstance(source, frozenset) else (yield source)
        return found

    def _made_of(self, key: Key) -> Iterator[Key | frozenset[str]]:
        """Yield the library's names, and what else a value is made of."""
        match key:
            case Binding(node=cst.Param()):
                yield from self.given(key)
            case Binding(value=cst.Tuple(items) | cst.List(items), index=place) if (place or 0) < len(items):
                yield items[place or 0].value
            case Binding(value=cst.Call(cst.Name(name)), index=int(place)) if own := self.definitions(name):
                functions = (b.node for b in own if isinstance(b.node, cst.FunctionDef))
                yield from (part(value, place) for each in functions for value in self.returned(each))
            case Binding(value=value):
                yield from () if value is None else (value,)
            case cst.FunctionDef():
                yield from map(part, self.returned(key))
            case cst.ClassDef(bases=bases):
                for base in bases:
                    yield from self._makers(base.value)
            case cst.Call(func=func, args=args):
                wraps = bool(args) and self.qualified(func).rpartition(".")[2] in libraries.TRAINER_WRAPPERS
                yield from [keyword_of(key, "trainer") or args[0].value] if wraps else ()
                yield from [*self._makers(func)] or [func]
            case cst.Attribute(value=owner, attr=attr):
                yield from self.assigned(attr.value)
                yield owner
            case cst.Subscript(value=owner) | cst.Await(expression=owner):
                yield owner
            case cst.Name():
                binding = self.binding(key)
                yield from () if binding is None else (binding,)

    def _makers(self, function: cst.BaseExpression) -> Iterator[Key | frozenset[str]]:
        """Yield what makes the value of a call; nothing where its owner does."""
        name, root = self.qualified(function), root_of(function)
        own = self.definitions(name) if isinstance(function, cst.Name) else ()
        yield from (b.node for b in own if isinstance(b.node, cst.FunctionDef | cst.ClassDef))
        if own or not isinstance(root, cst.Name):
            return
        if self.is_imported(root.value):
            yield frozenset({name})
        elif self.collected.stars and root.value not in self.bound_names and root.value not in _BUILTINS:
            yield frozenset(f"{module}.{name}" for module in self.collected.stars)

    def is_deleted(self, scope: Scope | None) -> bool:
        """Return whether ``del`` removes a model or a trainer from ``scope``, to free its memory."""
        deleted = (node for node in self.nodes(cst.Del) if self.scope(node) is scope)
        inside = (name for node in deleted for name in self.nodes(cst.Name, within=node))
        names = (name for name in inside if isinstance(self.parent(name), cst.Del | cst.Element))
        return any(self.kind(b.value) in ("model", "trainer") for n in names for b in self.bindings(n.value))


def part(value: cst.BaseExpression, place: int = 0) -> cst.BaseExpression:
    """Return a value of a tuple; any other value as it is."""
    elements = value.elements if isinstance(value, cst.Tuple) else ()
    return elements[place].value if place < len(elements) else value


def _is_any(is_known: Callable[[str, str], bool], names: Collection[str]) -> bool:
    """Return whether one of some dotted names is known, by its package and its last part."""
    return any(is_known(name.partition(".")[0], name.rpartition(".")[2]) for name in names)
