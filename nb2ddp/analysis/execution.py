"""Follow what runs: calls reached from a statement, training, collectives, and what comes after them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.calls import Calls
from nb2ddp.analysis.solver import Solver, search
from nb2ddp.source.cells import CodeCell, Statement, last_name, root_of
from nb2ddp.source.cst_nodes import code_of, given, is_word, keyword_of, method_of, string_value, unnamed

_OF_CONTAINERS = frozenset("items values get pop popleft".split())
_LITERALS = {cst.List, cst.Tuple, cst.Dict}
_SEARCHES = 32  # how many are kept, those used last


class Execution(Calls):
    """Answer what a statement runs, where the ranks meet, and when training is over."""

    def __init__(self, cells: Sequence[CodeCell], *, sharded: bool = False, is_loose: bool = False) -> None:
        super().__init__(cells, is_loose=is_loose)
        self._sharded, self._is_asked = sharded, False
        self._search = lru_cache(_SEARCHES)(self._searching)
        self._sites: dict[cst.CSTNode, list[cst.Call | cst.For | cst.CompFor]] = {}
        self._loops: dict[cst.Call, cst.For | cst.While | cst.Call | None] = {}

    # ---- calls ----------------------------------------------------------------------------------

    def runs(self, node: cst.CSTNode, wanted: Callable[[cst.Call], object]) -> bool:
        """Return whether running ``node`` runs a ``wanted`` call, also through the notebook's own functions.

        The bodies of functions and classes that ``node`` only defines do not count. What is found is kept
        for each ``wanted``, so a caller that asks often passes the same function each time.
        """
        return not isinstance(node, cst.FunctionDef | cst.ClassDef) and self._search(wanted).solve(node)

    def _searching(self, wanted: Callable[[cst.Call], object]) -> Solver[cst.CSTNode, bool]:
        """Return what searches a node, and the functions that it calls, for a wanted call."""

        def runs(node: cst.CSTNode) -> bool | None:
            return any(wanted(site) for site in self._sites_in(node) if isinstance(site, cst.Call)) or None

        return search(runs, self._functions_in)

    def _functions_in(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the functions that running ``node`` calls, and the generators that it goes through."""
        for site in self._sites_in(node):
            yield from self.called_functions(site) if isinstance(site, cst.Call) else self.iterated(site.iter)

    def _sites_in(self, node: cst.CSTNode) -> Sequence[cst.Call | cst.For | cst.CompFor]:
        """Return the calls and loops that running ``node`` runs itself; of a function, those of its body."""
        if node not in self._sites:
            inside = node.body if isinstance(node, cst.FunctionDef) else node
            home, dead = self.scope(inside), self.is_dead(node)
            sites = self.nodes(cst.Call, cst.For, cst.CompFor, within=inside)
            live = ((site, self.scope(site)) for site in sites if dead or not self.is_dead(site))
            self._sites[node] = [s for s, scope in live if scope is home or isinstance(scope, cst.Lambda)]
        return self._sites[node]

    def shown(self, cell: CodeCell) -> list[cst.BaseExpression]:
        """List the expressions whose values the notebook displays below the cell: the last one, mostly."""
        body = cell.module.body
        last = body[-1].body[-1] if body and isinstance(body[-1], cst.SimpleStatementLine) else None
        if isinstance(last, cst.Expr) and isinstance(last.semicolon, cst.Semicolon):
            return []  # as people write after a plot
        modes = [mode for order, mode in self._modes if body and order < self.order(body[0])]
        parts = self.nodes(cst.Expr, within=cell.module) if modes[-1:] == ["all"] else [last]
        own = (part for part in parts if isinstance(part, cst.Expr) and self.scope(part) is None)
        return [part.value for part in own if self._is_shown(part.value)]

    @cached_property
    def _modes(self) -> list[tuple[int, str]]:
        """List where the notebook says which values of later cells it displays: ``ast_node_interactivity = "all"``."""
        name = "ast_node_interactivity"
        found = [(self.order(value), string_value(value) or "") for value in self.assigned(name)]
        for text in self.strings:  # %config
            word = re.search(rf"{name} *= *\W(\w+)", string_value(text) or "")
            found += [(self.order(text), word[1])] if word else []
        return sorted(found)

    def _is_shown(self, value: cst.BaseExpression) -> bool:
        """Return whether the notebook displays a value: not what only does something, by its name."""
        if not isinstance(value, cst.Call):
            return not isinstance(value, cst.Yield | cst.Await)
        if own := [f for f in self.run_by(value.func) if f.name.value not in ("__init__", "__post_init__")]:
            yields = any(self.nodes(cst.Yield, within=f.body, own=True) for f in own)
            return yields or any(f.asynchronous or self.returned(f) for f in own)
        name, root = self.qualified(value.func), self.bound(root_of(value.func))
        called = method_of(value) or name.rpartition(".")[2]
        but = {"evaluate"} if self.origins(value) and self.kind(self.owner(value)) != "trainer" else set()
        silent = called in libraries.SILENT_CALLS - but or called.startswith(("save_", "push_to_hub"))
        silent |= is_word(keyword_of(value, "inplace"), "True") or value in self.lightning_fits
        silent |= name in libraries.GIVE_NOTHING | {"os.system"} or name.startswith("google.colab.")
        return not (silent or (isinstance(root, cst.Call) and "get_ipython" in self.qualified(root.func)))

    # ---- training -------------------------------------------------------------------------------

    def kind(self, node: cst.CSTNode | None) -> str:
        """Return the kind of a value; what may be a Trainer, of a list say, counts as one where reading is loose."""
        found = super().kind(node)
        if found or not self._is_loose or self._is_asked or not isinstance(node, cst.BaseExpression):
            return found
        self._is_asked = True
        try:
            return "trainer" if self.carries(node, Execution._is_trainer) else ""
        finally:
            self._is_asked = False

    def _is_trainer(self, node: cst.CSTNode) -> bool | None:
        """Label the calls that make a Trainer, and leave out what methods of it return."""
        match node:
            case cst.Name("self") if (home := self.around(node, cst.ClassDef)) is not None:
                trains = any(code_of(call.func) == "self.train" for call in self.calls_in(home))
                return (trains and any(self.is_trainer_class(base.value) for base in home.bases)) or None
            case cst.Call(func=cst.Attribute(attr=attr)) if not self.called_functions(node):
                return None if attr.value in _OF_CONTAINERS else self.is_trainer_class(node.func)
            case cst.Call(func=func):
                return self.carries(func, Execution._names_trainer) or None
            case cst.Attribute(attr=cst.Name(name)) if name not in _OF_CONTAINERS and not self.assigned(name):
                return False
        return None

    def _names_trainer(self, node: cst.CSTNode) -> bool | None:
        return (isinstance(node, cst.Name | cst.Attribute) and self.is_trainer_class(node)) or None

    @cached_property
    def train_calls(self) -> tuple[cst.Call, ...]:
        """List the live ``trainer.train()`` and ``unsloth_train(trainer)`` calls, in order."""
        return tuple(call for call in self.live_calls if self.trained(call) is not None)

    @property
    def may_train_more(self) -> bool:
        """Whether ``x.train()`` is called on something that is not known, and on no function of the notebook."""
        calls = (c for c in self.live_calls if method_of(c) == "train" and not self.called_functions(c))
        return any(self.kind(self.owner(call)) == "" for call in calls)

    def trained(self, call: cst.Call) -> cst.BaseExpression | None:
        """Return the trainer that a call trains; None where it trains none."""
        if isinstance(call.func, cst.Attribute) and call.func.attr.value == "train":
            return call.func.value if self.kind(call.func.value) == "trainer" else None
        if self.qualified(call.func) in libraries.COLLECTIVE_FUNCTIONS:
            return given(call, 0, "trainer")
        return None

    def training_loop(self, call: cst.Call) -> cst.For | cst.While | cst.Call | None:
        """Return the loop around a call of ``backward()``, or around a call that leads to it, the nearest first.

        Calls are followed through the notebook's functions and methods. ``optimizer.step(closure)`` calls the closure
        again and again by itself. None for what a Trainer's methods do: its own loop calls them, and a loop in them
        takes several steps of one micro-batch.
        """
        if call not in self._loops:
            loops = (loop for loop in self.loops_to(call) if not isinstance(loop, cst.BaseComp))
            calls = (site for site in self.sites(call) if isinstance(site, cst.Call))
            steps = (c for c in calls if method_of(c) == "step" and c.args)
            self._loops[call] = None if self._is_of_trainer(call) else next(loops, None) or next(steps, None)
        return self._loops[call]

    def loops_to(self, node: cst.CSTNode) -> Iterator[cst.For | cst.While | cst.BaseComp]:
        """Yield the loops and comprehensions around a node, and around the calls that lead to it, the nearest first."""
        for site in self.sites(node):
            yield from self.loops(site)

    def _is_of_trainer(self, call: cst.Call) -> bool:
        """Return whether only methods of the notebook's Trainers lead to a call."""

        def is_method(site: cst.CSTNode) -> bool:
            owner = self.around(site, cst.ClassDef)
            return owner is not None and any(self.is_trainer_class(base.value) for base in owner.bases)

        homes = ((site, self.around(site, cst.FunctionDef)) for site in self.sites(call, stop=is_method))
        return all(is_method(site) or (home is not None and self.callers(home)) for site, home in homes)

    def fills_cache(self, call: cst.Call) -> bool:
        """Return whether a call leaves data on disk that a later call of it finds: the Datasets cache, a download."""
        name, own = self.qualified(call.func), [d.node for d in self.definitions(self.qualified(call.func))]
        marks = (mark.decorator for d in own if isinstance(d, cst.FunctionDef) for mark in d.decorators)
        kept = any(not libraries.CACHES.isdisjoint(self.origins(each)) for each in (call.func, *marks))
        made = (libraries.PREPARING_CLASSES & self.bases(d) for d in own if isinstance(d, cst.ClassDef))
        maps = method_of(call) in libraries.CACHED_METHODS and self.kind(self.owner(call)) == "dataset"
        return name in libraries.CACHED_FUNCTIONS or kept or any(made) or maps or self._downloads(call, name)

    def _downloads(self, call: cst.Call, name: str) -> bool:
        """Match ``MNIST(download=True)``, ``field.build_vocab(rows, vectors="glove")`` and ``rows.download()``."""
        download = keyword_of(call, "download") or keyword_of(call, "vectors")
        named = libraries.DOWNLOADS.search(name or f".{method_of(call)}") or self._gives_data(call)
        if not (download or named) or name in libraries.WRITING_FUNCTIONS or self.fetches_artifact(call):
            return False
        root = root_of(call.func)  # mnist of `mnist = keras.datasets.mnist`
        is_library = self.is_of_import(self.bound(root) or root) or self.origins(root)
        may_be = bool(is_library) or not (download is None or self.definitions(method_of(call) or name))
        return may_be and (download is None or code_of(download) != "False")

    def _gives_data(self, call: cst.Call) -> bool:
        """Match ``Corpus.load("mini")``, ``x, y = flowers()`` and ``rows = Flowers("mini")``, given settings alone."""
        made, function = self.parent(call), call.func
        into = code_of(made.targets[0].target) if isinstance(made, cst.Assign) else ""
        first = code_of(call.args[0].value) if call.args else ""
        is_object = isinstance(function, cst.Name) and self.bindings(function.value)  # net(x)
        functions = frozenset[str]() if is_object else self.function_names(call)
        names = {f"{of}().{method_of(call)}" for of in self.origins(self.owner(call) or function)} | functions
        for module, _, last in [name.rpartition(".") for name in functions]:
            kept = "data" if libraries.FETCHES.match(f"{last} {into}") else into.rpartition(".")[2]
            reads = isinstance(made, cst.Expr) or libraries.IS_FILE.search(first)  # or its result is not kept
            names |= {f"{module}.{kept}"} if not reads and (first or last[:1].islower()) else set()
        of_libraries = (n for n in names if n.partition(".")[0] not in libraries.GIVE_NO_DATA)
        values = (a.value for a in call.args if "transform" not in last_name(a.keyword or a.value))
        gives = any(map(libraries.GIVES_DATA.fullmatch, of_libraries))
        if not gives or any(self.carries(value, Execution._is_data) for value in values):
            return False
        steps = map(self.training_loop, filter(self.is_backward, self.live_calls))
        return set(steps).isdisjoint(self.loops_to(call))  # in each the ranks would wait

    def _is_data(self, node: cst.CSTNode) -> bool | None:
        """Label what is no number, text, path, transform, nor made of these: what is read or computed."""
        if isinstance(node, cst.Call):
            is_known = libraries.SETTINGS.match(self.qualified(node.func)) or not self.is_of_import(node.func)
            return code_of(node.func) == "open" or not is_known or self.kind(node) != "" or None
        bound = self.reaching(node) if isinstance(node, cst.Name) and node.value != "self" else ()
        params = (b for b in bound if isinstance(b.node, cst.Param) and b.node.default is None)
        is_open = any(not any(self.given(param)) for param in params)
        taken = {type(self.value(b.node.iter)) for b in bound if isinstance(b.node, cst.For)}
        return is_open or not taken <= _LITERALS or isinstance(node, cst.BaseComp) or None

    # ---- collectives ----------------------------------------------------------------------------

    def is_collective(self, call: cst.Call) -> bool:
        """Return whether every rank has to make a call, so that it must not be gated: training, evaluation."""
        method = method_of(call)
        if method in libraries.COLLECTIVE_METHODS | libraries.LIGHTNING_METHODS:
            kind = self.kind(self.owner(call))
            if kind == "lightning":
                return method in libraries.LIGHTNING_METHODS and bool(self.lightning_fits)
            return kind == "trainer" and method in libraries.COLLECTIVE_METHODS
        if self.kind(self.owner(call)) == "accelerator":
            return method not in libraries.CALLED_ALONE
        if self.gives_gradients(call):  # once, outside a loop, it shows how gradients are made
            return self.training_loop(call) is not None
        return self.gathers(call) or self.qualified(call.func) in libraries.COLLECTIVE_FUNCTIONS

    @cached_property
    def lightning_fits(self) -> tuple[cst.Call, ...]:
        """List the live calls of ``fit()`` of Lightning's Trainers, in order."""
        fits = (call for call in self.live_calls if method_of(call) == "fit")
        return tuple(call for call in fits if self.kind(self.owner(call)) == "lightning")

    def needs_all(self, call: cst.Call) -> bool:
        """Return whether all ranks make a call together: a collective one, or one with which Accelerate joins them."""
        return self.is_collective(call) or self.kind(call) in ("trainer", "arguments", "accelerator")

    def is_training(self, call: cst.Call) -> bool:
        """Return whether a call is a part of training: it gives gradients, or is a collective one."""
        return self.gives_gradients(call) or self.is_collective(call)

    def is_backward(self, call: cst.Call) -> bool:
        """Return whether a call gives the gradients that a loop trains with."""
        return self.gives_gradients(call) and self.is_collective(call)

    def gives_gradients(self, call: cst.Call) -> bool:
        """Match ``loss.backward()``, which returns nothing, and ``torch.autograd.grad(loss, model.parameters())``."""
        inputs = given(call, 1, "inputs") if self.qualified(call.func) == "torch.autograd.grad" else None
        asks = inputs is not None and self.carries(inputs, Execution._gives_parameters)
        if method_of(call) != "backward":
            return asks
        is_bound = isinstance(self.parent(call), cst.Assign | cst.AugAssign) and bool(unnamed(call.args))
        return not is_bound or self.comes_from(call.func, "torch")

    def _gives_parameters(self, node: cst.CSTNode) -> bool | None:
        return (isinstance(node, cst.Call) and method_of(node) in libraries.PARAMETER_METHODS) or None

    def is_for_all(self, call: cst.Call) -> bool:
        """Return whether a call is what every rank has to do: training, and calls of the model."""
        return self.needs_all(call) or self.kind(call.func) == "model" or method_of(call) == "step"

    def gathers(self, call: cst.Call) -> bool:
        """Return whether a call needs the shards of all ranks: a sharded model generates, or is saved."""
        if not self._sharded or not isinstance(call.func, cst.Attribute):
            return False
        method, owner = call.func.attr.value, call.func.value
        if self.kind(owner) == "trainer":
            return method in ("save_model", "push_to_hub")
        return method in libraries.GATHERING_METHODS and self.is_sharded(owner)

    def is_sharded(self, node: cst.BaseExpression) -> bool:
        """Return whether an expression is the model that a Trainer has sharded, where it stands."""
        sharding = self._sharding if self._sharded and self.kind(node) == "model" else None
        if sharding is None or not self._may_run_after(node, sharding):
            return False
        made = self.bound(node)  # not one loaded again
        loaded = isinstance(made, cst.Call) and method_of(made) == "from_pretrained"
        return not (loaded and made is not None and self.order(made) > self.end(sharding))

    def _may_run_after(self, node: cst.CSTNode, call: cst.Call) -> bool:
        """Return whether a node may run after a call; what is in a function runs where the function is called."""

        def is_beside(site: cst.CSTNode) -> bool:
            return self.scope(site) in (None, self.scope(call))

        def is_after(site: cst.CSTNode) -> bool:
            if is_beside(site):
                return self.order(site) > self.end(call)
            scope = self.scope(site)  # of a method, or of a function that a library calls, nothing is known
            return not (isinstance(scope, cst.FunctionDef) and self.callers(scope))

        return any(is_after(site) for site in self.sites(node, stop=is_beside))

    @cached_property
    def _sharding(self) -> cst.Call | None:
        """Return the first call that makes a Trainer, which shards the model."""
        return next((c for c in self.live_calls if self.is_trainer_class(c.func)), None)

    @cached_property
    def collective_statements(self) -> tuple[Statement, ...]:
        """List the statements of cells that run a collective call."""
        return tuple(s for s in self.top_statements if self.runs(s, self.is_collective))

    @cached_property
    def last_collective(self) -> Statement | None:
        """Return the last statement that runs a collective call."""
        return self.collective_statements[-1] if self.collective_statements else None

    def is_after_training(self, node: cst.CSTNode) -> bool:
        """Return whether ``node`` stands after the last collective, where rank 0 may work alone."""
        last = self.last_collective
        return last is not None and self.order(node) > self.end(last)
