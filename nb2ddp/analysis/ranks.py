"""Find what a notebook asks of ranks: tests that only rank 0 passes, and any other use, which is declined.

A notebook of one process rarely speaks of ranks; where it does, mostly so that rank 0 alone prints and saves. Such
tests keep their meaning. All of this runs only where an identifier says so. What torchrun puts into the environment
(RANK, WORLD_SIZE) is no question here: the script takes it out, and what a notebook reads from it is what one process
reads, on every rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import Binding, Statement, root_of

# "main" is true on rank 0 alone, "others" on all ranks but it; "rank" is the rank's number.
# "size" depends on the number of ranks, "group" on whether torchrun started them, "ranks" otherwise on the rank.
Meaning = Literal["", "main", "others", "rank", "size", "group", "ranks"]

_SWAPPED: dict[Meaning, Meaning] = {"main": "others", "others": "main", "rank": "main"}
_TESTS = libraries.RANK_ZERO_TESTS
_NAMES = _TESTS | libraries.RANK_FUNCTIONS
_CASTS = frozenset({"int", "float", "str", "bool"})
_FUNCTIONS = cst.FunctionDef | cst.Lambda | cst.ClassDef
# What chooses a device, and keywords with which each rank may be given its own number.
_DEVICES = frozenset("torch.device torch.cuda.set_device device set_device to cuda".split())
_KEYWORDS = frozenset(
    "device device_map device_ids output_device is_main_process disable disable_tqdm position verbose "
    "log_level".split()
)


def speaks_of_ranks(facts: Facts) -> bool:
    """Return whether an identifier, or a variable of the environment, says that a notebook knows ranks."""
    return facts.once(_speaks)


def _speaks(facts: Facts) -> bool:
    return (
        not _NAMES.isdisjoint(facts.loaded_names | facts.bound_names)
        or any(
            a.attr.value in _NAMES or a.attr.value in ("distributed", "should_save") for a in facts.attributes
        )
        or any("distributed" in cst_nodes.code_of(node) for node in facts.imports_of("torch"))
    )


def meaning(facts: Facts, node: cst.CSTNode) -> Meaning:
    """Return how an expression depends on the ranks."""
    if not speaks_of_ranks(facts) or not isinstance(node, cst.BaseExpression):
        return ""
    return facts.once(_Meanings).of(node)


class _Meanings:
    """Evaluate meanings, each expression once."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[cst.CSTNode | Binding, Meaning] = {}

    def of(self, node: cst.CSTNode | Binding) -> Meaning:
        if node not in self._known:
            self._known[node] = ""  # for what is made of itself
            self._known[node] = self._bound(node) if isinstance(node, Binding) else self._find(node)
        return self._known[node]

    def _find(self, node: cst.CSTNode) -> Meaning:
        match node:
            case cst.Name():
                return self._name(node)
            case cst.Attribute():
                return self._attribute(node)
            case cst.Call():
                return self._call(node)
            case cst.UnaryOperation(operator=cst.Not(), expression=inner):
                return _SWAPPED.get(found := self.of(inner), found)
            case cst.UnaryOperation(expression=inner) | cst.NamedExpr(value=inner):
                return self.of(inner)
            case cst.Comparison(left=left, comparisons=[part]):
                return self._comparison(left, part)
            case cst.BooleanOperation(left=left, operator=operator, right=right):
                return _joined(self.of(left), self.of(right), both=isinstance(operator, cst.And))
            case cst.BinaryOperation(left=left, right=right):
                return "ranks" if self.of(left) or self.of(right) else ""
            case cst.IfExp(test=test, body=body, orelse=orelse):
                return _either([self.of(body), self.of(orelse)]) or self._chosen(test, body, orelse)
        return ""

    def _chosen(
        self, test: cst.BaseExpression, one: cst.BaseExpression, other: cst.BaseExpression
    ) -> Meaning:
        """Return the meaning of a value that a test of the rank chooses: ``"steps" if rank == 0 else "no"``."""
        found = self.of(test)
        match cst_nodes.code_of(one), cst_nodes.code_of(other):
            case "True", "False":
                return found
            case "False", "True":
                return _SWAPPED.get(found, found)
        return "ranks" if found in ("main", "others", "rank", "ranks") else ""

    def _name(self, node: cst.Name) -> Meaning:
        bindings = self._facts.bindings(node.value)
        if not bindings:
            return _by_name(node.value)
        last = self._facts.binding(node)
        if last is None or self._facts.comprehension(node) is not None:
            return ""
        seen = self._facts.reaching(node) or [b for b in bindings if b.scope is last.scope]
        return _either([self.of(binding) for binding in seen])

    def _bound(self, binding: Binding) -> Meaning:
        if isinstance(binding.node, cst.Param):
            given = [*self._facts.given(binding)] or [*self._facts.passed(binding)]
            if not given and binding.name in libraries.RANK_ZERO_TESTS:
                return "main"
            return _either([self.of(value) for value in given])
        value = binding.value
        if isinstance(binding.node, cst.For | cst.AugAssign | cst.WithItem) or value is None:
            return ""
        if binding.index is not None:
            values = _items(self._facts, value)
            return _either([self.of(items[binding.index]) for items in values if binding.index < len(items)])
        return self.of(value)

    def _attribute(self, node: cst.Attribute) -> Meaning:
        name = node.attr.value
        qualified = self._facts.qualified(node)
        if qualified.startswith("torch.distributed."):
            return _by_name(name)
        if name == "should_save":
            return "main" if "arg" in cst_nodes.code_of(node.value).rpartition(".")[2].lower() else ""
        fields = self._facts.fields(name)
        own = [*self._facts.assigned(name)]
        own += [b.value for b in fields if b.value is not None]
        if own:
            return _either([self.of(value) for value in own])
        functions = [b.node for b in fields if isinstance(b.node, cst.FunctionDef)]
        if functions:  # a property, or a method that is called
            return _either([self._returned(function) for function in functions])
        if name not in libraries.TESTS_OF_LIBRARIES or self._is_one_process(node.value):
            return ""
        return "main"

    def _is_one_process(self, owner: cst.BaseExpression) -> bool:
        """Return whether an object is the notebook's Accelerator, which sees one process in the script."""
        root = root_of(owner)
        return self._facts.kind(owner) == "accelerator" or (
            isinstance(root, cst.Name | cst.Call) and self._facts.kind(root) == "accelerator"
        )

    def _call(self, node: cst.Call) -> Meaning:
        name = self._facts.qualified(node.func)
        unnamed = cst_nodes.unnamed(node.args)
        if name in _CASTS and len(unnamed) == 1:
            found = self.of(unnamed[0])
            return "others" if name == "bool" and found == "rank" else found
        own = self._facts.called_functions(node) if isinstance(node.func, cst.Name) else ()
        if own:
            return _either([self._returned(function) for function in own])
        if name.startswith("torch.distributed.") and name.rpartition(".")[2] not in _NAMES:
            is_question = name.rpartition(".")[2].startswith("is_")
            return "group" if is_question else ""
        if isinstance(node.func, cst.Attribute):
            return self._attribute(node.func)
        last = name.rpartition(".")[2]
        return _by_name(last) if last in _NAMES else ""

    def _returned(self, function: cst.FunctionDef) -> Meaning:
        if function not in self._known:
            self._known[function] = ""
            self._known[function] = _either([self.of(value) for value in self._facts.returned(function)])
        return self._known[function]

    def _comparison(self, left: cst.BaseExpression, part: cst.ComparisonTarget) -> Meaning:
        found, other = self.of(left), self.of(part.comparator)
        if found != "rank" or other:
            kinds = {found, other} - {""}
            return (kinds.pop() if kinds in ({"size"}, {"group"}) else "ranks") if kinds else ""
        code = cst_nodes.code_of(part.comparator).strip("'\"")
        match part.operator, code:
            case (cst.Equal(), "0") | (cst.LessThan(), "1") | (cst.LessThanEqual(), "0"):
                return "main"
            case (cst.NotEqual(), "0") | (cst.GreaterThan(), "0") | (cst.GreaterThanEqual(), "1"):
                return "others"
            case (cst.In() | cst.NotIn(), "(-1, 0)" | "[-1, 0]" | "(0, -1)" | "[0, -1]" | "{-1, 0}" | "[0]"):
                return "main" if isinstance(part.operator, cst.In) else "others"
            case (
                (cst.NotEqual() | cst.Equal() | cst.GreaterThan(), "-1")
                | (cst.GreaterThanEqual(), "0")
                | (cst.Is() | cst.IsNot(), "None")
            ):
                return "group"
        return "ranks"


def _by_name(name: str) -> Meaning:
    if name in libraries.RANK_ZERO_TESTS:
        return "main"
    if name in libraries.RANK_FUNCTIONS:
        return "size" if name == "get_world_size" else "rank"
    return ""


def _either(found: list[Meaning]) -> Meaning:
    """Return the meaning of one of several values, of which some may be constants: ``get_rank() if ... else 0``."""
    kinds = {kind for kind in found if kind}
    return kinds.pop() if len(kinds) == 1 else ("ranks" if kinds else "")


def _joined(left: Meaning, right: Meaning, *, both: bool) -> Meaning:
    """Return the meaning of ``a and b``, or of ``a or b``."""
    kinds = {left, right} - {""}
    if (
        len(kinds) == 2 and "group" in kinds
    ):  # `not is_initialized() or get_rank() == 0`: the script has a group
        kinds -= {"group"}
        return kinds.pop()
    if len(kinds) != 1:
        return "ranks" if kinds else ""
    (kind,) = kinds
    if both:
        return {"rank": "others"}.get(kind, kind) if "" in (left, right) else kind  # type: ignore[return-value]
    is_default = kind == "rank" and left == "rank"  # `local_rank or 0`
    return kind if is_default or "" not in (left, right) or kind in ("size", "group") else "ranks"


def _items(facts: Facts, value: cst.BaseExpression) -> Iterator[list[cst.BaseExpression]]:
    """Yield the values of ``a, b``: of a tuple, and of what the notebook's functions return as one."""
    if isinstance(value, cst.Tuple | cst.List):
        yield [element.value for element in value.elements]
    elif isinstance(value, cst.Call):
        for function in facts.called_functions(value):
            for returned in facts.returned(function):
                if isinstance(returned, cst.Tuple):
                    yield [element.value for element in returned.elements]


# ---- tests of the rank --------------------------------------------------------------------------


def side(facts: Facts, test: cst.BaseExpression) -> Literal["", "main", "others", "ranks"]:
    """Return which ranks pass a test: at most rank 0, all but rank 0, some; "" where all decide alike."""
    found = meaning(facts, test)
    match found:
        case "main" | "others" | "ranks":
            return found
        case "rank":
            return "others"
    if isinstance(test, cst.BooleanOperation):
        return side(facts, test.left) or side(facts, test.right)
    if isinstance(test, cst.UnaryOperation):
        return side(facts, test.expression)
    return "ranks" if _is_set_by_some(facts, test) else ""


def _is_set_by_some(facts: Facts, test: cst.BaseExpression) -> bool:
    """Return whether a test reads a name that is bound below a test of the rank: ``stop`` of rank 0 alone."""
    if not speaks_of_ranks(facts) or not isinstance(test, cst.Name) or not facts.bindings(test.value):
        return False
    if any(True for _ in _tests_around(facts, test)):
        return False
    bound = [b for b in facts.bindings(test.value) if not isinstance(b.node, cst.Param)]
    return len(bound) > 1 and any(True for b in bound for _ in _tests_around(facts, b.node))


def _tests_around(facts: Facts, node: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """Yield the tests of the rank around a node, the innermost first; up to the function that it stands in."""
    inner = node
    for parent in facts.parents(node):
        if isinstance(parent, _FUNCTIONS):
            return
        for test in _tests_of(inner, parent):
            if not facts.contains(test, node) and side(facts, test):
                yield test
        inner = parent


def _tests_of(inner: cst.CSTNode, parent: cst.CSTNode) -> Iterator[cst.BaseExpression]:
    """Yield what decides whether a part of a node runs."""
    match parent:
        case cst.If(test=test) | cst.IfExp(test=test) | cst.While(test=test) if inner is not test:
            yield test
        case cst.BooleanOperation(left=left) if inner is not left:
            yield left
        case cst.ListComp(for_in=part) | cst.GeneratorExp(for_in=part) | cst.SetComp(for_in=part):
            for condition in part.ifs:
                yield condition.test


def rank_test_above(facts: Facts, node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return a test of the rank that decides whether a node, or a call that leads to it, runs; None without one.

    The node stands below it, or behind a ``return``, ``break`` or ``continue`` that does. Calls that come after
    training do not count: rank 0 works alone there.
    """
    return _above(facts, node, {node}) if speaks_of_ranks(facts) else None


def _above(facts: Facts, node: cst.CSTNode, seen: set[cst.CSTNode]) -> cst.BaseExpression | None:
    inner = node
    for parent in facts.parents(node):
        for test in _tests_of(inner, parent):
            if side(facts, test):
                return test
        for skipping, way_out in facts.once(_early_ways_out).get(parent, ()):
            if _is_skipped(facts, node, skipping, way_out):
                return skipping
        if isinstance(parent, cst.FunctionDef):
            callers = [c for c in facts.callers(parent) if c not in seen and not facts.is_after_training(c)]
            seen.update(callers)
            return next((found for caller in callers if (found := _above(facts, caller, seen))), None)
        inner = parent
    return None


def _early_ways_out(facts: Facts) -> dict[cst.CSTNode, list[tuple[cst.BaseExpression, cst.CSTNode]]]:
    """Return by function and loop what leaves it below a test of the rank."""
    found: dict[cst.CSTNode, list[tuple[cst.BaseExpression, cst.CSTNode]]] = {}
    for node in _ways_out(facts):
        if isinstance(node, cst.Return | cst.Break | cst.Continue) and not facts.is_dead(node):
            left = facts.scope(node) if isinstance(node, cst.Return) else facts.loop(node)
            if left is not None and (test := _test_of(facts, node)) is not None:
                found.setdefault(left, []).append((test, node))
    return found


def _is_skipped(facts: Facts, node: cst.CSTNode, test: cst.BaseExpression, way_out: cst.CSTNode) -> bool:
    """Return whether a rank that takes a way out skips a node of the loop, or the function, that it leaves."""
    if facts.contains(test, node):
        return False
    around = None if isinstance(way_out, cst.Continue) else facts.loop(way_out)
    return facts.order(node) > facts.order(test) or (around is not None and facts.contains(around, node))


def asks_library(test: cst.BaseExpression) -> bool:
    """Return whether a test for rank 0 asks an object of a library: ``trainer.is_world_process_zero()``."""
    named = libraries.TESTS_OF_LIBRARIES | {"should_save"}
    return any(word in named for word in re.findall(r"\.(\w+)", cst_nodes.code_of(test)))


# ---- some ranks leave ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaving:
    """Some ranks leave a place at which all have to go on: by ``how``, below ``test``."""

    test: cst.BaseExpression
    how: str


def leaving_ranks(facts: Facts) -> Iterator[Leaving]:
    """Yield the tests of the rank below which some ranks leave what all of them have to come to later."""
    if not speaks_of_ranks(facts) or facts.last_collective is None:
        return
    said: set[cst.CSTNode] = set()
    for node in _ways_out(facts):
        test = _test_of(facts, node)
        if test is None or test in said or facts.is_dead(node) or facts.is_after_training(test):
            continue
        if how := _leaves_training(facts, test, node):
            said.add(test)
            yield Leaving(test, how)


def _test_of(facts: Facts, node: cst.CSTNode) -> cst.BaseExpression | None:
    """Return the test of the rank above a way out; of a ``break``, inside its loop; of a ``return``, its function."""
    if isinstance(node, cst.Call | cst.Raise):
        return rank_test_above(facts, node)
    loop = facts.loop(node) if isinstance(node, cst.Break | cst.Continue) else None
    tests = _tests_around(facts, node)
    return next((test for test in tests if loop is None or facts.contains(loop, test)), None)


def _ways_out(facts: Facts) -> list[cst.CSTNode]:
    """List the statements and calls that may leave what is around them, in order."""
    return facts.once(_found_ways_out)


def _found_ways_out(facts: Facts) -> list[cst.CSTNode]:
    kinds = (cst.Return, cst.Break, cst.Continue, cst.Raise, cst.Call)
    return [
        node
        for node in facts.nodes(*kinds)
        if not isinstance(node, cst.Call) or facts.qualified(node.func) in libraries.ENDING_FUNCTIONS
    ]


def _leaves_training(facts: Facts, test: cst.BaseExpression, node: cst.CSTNode) -> str:
    """Return how a statement or call leaves before something that all ranks do together; "" if it does not.

    An error that may happen is none: it ends the run, as it ends the notebook. One below a test of the rank alone
    ends every run.
    """
    match node:
        case cst.Call(func=function):
            return f"{cst_nodes.code_of(function)}()" if _ends_all(facts, test, node) else ""
        case cst.Raise(exc=exc):
            raised = exc.func if isinstance(exc, cst.Call) else exc
            name = cst_nodes.code_of(raised) if raised is not None else "raise"
            return name if _ends_all(facts, test, node) else ""
        case cst.Return():
            home = facts.scope(node)
            meets = isinstance(home, cst.FunctionDef) and _all_meet(facts, home.body, after=test)
            return "return" if meets else ""
        case cst.Break() | cst.Continue():
            loop = facts.loop(node)
            if not isinstance(loop, cst.For | cst.While):
                return ""
            is_break = isinstance(node, cst.Break)
            meet = _all_meet(facts, loop.body, after=None if is_break else test)
            return ("break" if is_break else "continue") if meet else ""
    return ""


def _ends_all(facts: Facts, test: cst.BaseExpression, node: cst.Call | cst.Raise) -> bool:
    """Return whether a way out of the process is taken quietly, or as an error in each run."""
    given = (
        node.args if isinstance(node, cst.Call) else node.exc.args if isinstance(node.exc, cst.Call) else ()
    )
    code = given[0].value if given else None
    quiet = isinstance(node, cst.Call) or cst_nodes.code_of(node.exc or node).startswith("SystemExit")
    is_text = isinstance(code, cst.FormattedString | cst.SimpleString | cst.ConcatenatedString)
    if quiet and not is_text and not (isinstance(code, cst.Integer) and code.evaluated_value % 256 != 0):
        return True
    only_rank = not isinstance(test, cst.BooleanOperation)
    others = [p.test for p in facts.parents(node) if isinstance(p, cst.If | cst.While)]
    if any(isinstance(p, cst.For | cst.Try) for p in facts.parents(node)):
        return False
    return only_rank and all(side(facts, other) for other in others)


def _all_meet(facts: Facts, body: cst.CSTNode, *, after: cst.CSTNode | None) -> bool:
    """Return whether a block runs what all ranks do together, below ``after`` where that is given."""
    statements: list[Statement] = [
        statement
        for statement in (body.body if isinstance(body, cst.IndentedBlock) else ())
        if isinstance(statement, cst.SimpleStatementLine | cst.BaseCompoundStatement)
    ]
    loop = facts.loop(after) if after is not None else None
    if after is not None and (loop is None or not facts.contains(body, loop)):  # else it may come round again
        statements = [
            s for s in statements if facts.order(s) > facts.order(after) or facts.contains(s, after)
        ]
    return any(facts.runs(s, facts.needs_all) for s in statements)


# ---- other uses ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class OtherUse:
    """A use of ranks that is neither a test for rank 0 nor a choice of the device; ``of`` says of what."""

    node: cst.BaseExpression
    of: str


_WORDS = {
    "rank": "the rank",
    "ranks": "the rank",
    "main": "the rank",
    "others": "the rank",
    "size": "the number of ranks",
    "group": "whether torchrun started it",
}


def other_uses(facts: Facts, *, keeps_variables: bool = False) -> Iterator[OtherUse]:
    """Yield the uses of ranks that a script which divides the work by itself cannot keep, in order.

    ``keeps_variables``: torchrun's stay in the environment, for the libraries are to see all ranks.
    """
    if facts.last_collective is None:
        return
    if keeps_variables:
        for string in facts.strings:
            if _asks_environment(facts, string):
                yield OtherUse(string, "the rank")
    if not speaks_of_ranks(facts):
        return
    said: set[cst.CSTNode] = set()
    for node in _asking(facts):
        if facts.is_dead(node) or facts.is_after_training(node):
            continue
        if any(side(facts, test) == "main" for test in _tests_around(facts, node)):
            continue  # only rank 0 comes here
        use = _unknown_use(facts, node)
        if use is not None and (statement := facts.statement(node)) not in said:
            said.add(statement)
            yield OtherUse(use, _WORDS.get(meaning(facts, node), "the process group"))


def _asks_environment(facts: Facts, string: cst.BaseExpression) -> bool:
    """Match a name of torchrun's variables in ``os.environ["RANK"]`` and ``os.environ.get("RANK")``."""
    if cst_nodes.string_value(string) not in libraries.LAUNCH_VARIABLES or facts.is_after_training(string):
        return False
    for parent in facts.parents(string):
        match parent:
            case cst.Index() | cst.SubscriptElement() | cst.Arg():
                continue
            case cst.Subscript(value=owner):
                return facts.qualified(owner) == "os.environ" and not _is_target(facts, parent)
            case cst.Call(func=function):
                return facts.qualified(function) in ("os.environ.get", "os.getenv")
        return False
    return False


def _asking(facts: Facts) -> Iterator[cst.BaseExpression]:
    """Yield what tells of ranks: names, attributes, calls and items with a meaning, the outermost ones, in order."""
    loads = frozenset(facts.name_loads)
    end = 0  # of the last one
    for node in facts.nodes(cst.Name, cst.Attribute, cst.Call, cst.Subscript, cst.Comparison):
        if facts.order(node) <= end or (isinstance(node, cst.Name) and node not in loads):
            continue
        if isinstance(node, cst.Call) and _is_collective(facts, node):
            yield node
        elif meaning(facts, node) and not _is_target(facts, node):
            end = facts.end(node)
            yield node


def _is_target(facts: Facts, node: cst.CSTNode) -> bool:
    """Return whether a name or an item is given a value, imported, deleted, or part of a parameter's annotation."""
    for parent in facts.parents(node):
        if isinstance(parent, cst.AssignTarget | cst.Import | cst.ImportFrom | cst.AsName | cst.Del):
            return True
        if isinstance(parent, cst.Param):
            return parent.default is None
        if isinstance(parent, cst.BaseStatement):
            return False
    return False


def _is_collective(facts: Facts, call: cst.Call) -> bool:
    """Match functions of torch.distributed that all ranks have to call; what joins and leaves is taken out."""
    name = facts.qualified(call.func)
    last = name.rpartition(".")[2]
    return (
        name.startswith("torch.distributed.")
        and last not in _NAMES
        and name.count(".") == 2
        and not last.startswith(("is_", "init_process", "destroy_process", "barrier"))
    )


def _unknown_use(facts: Facts, node: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the expression of a use that is not known to be the same in the script; None where it is."""
    if isinstance(node, cst.Call) and _is_collective(facts, node):
        return node
    inner: cst.BaseExpression = node
    is_device = False
    for parent in facts.parents(node):
        match parent:
            case cst.If(test=test) | cst.While(test=test) | cst.IfExp(test=test) if test is inner:
                return None if _is_known_test(facts, parent, test) else inner
            case cst.Assign(value=value) | cst.AnnAssign(value=value) | cst.Return(value=value) if (
                value is inner
            ):
                followed = not isinstance(parent, cst.Assign) or not _sets_item(facts, parent)
                return None if is_device or (followed and meaning(facts, inner) != "ranks") else inner
            case cst.Arg():
                call = facts.parent(parent)
                takes = isinstance(call, cst.Call) and _takes_rank(facts, call, parent)
                return None if is_device or takes else inner
            case cst.DictElement(key=key) if cst_nodes.string_value(key) == "" or _is_device_key(key):
                return None  # device_map={"": local_rank}
            case cst.Tuple() | cst.Element() | cst.List():
                continue
            case cst.FormattedStringExpression() | cst.FormattedString():
                if isinstance(parent, cst.FormattedString):
                    is_device = cst_nodes.code_of(parent)[2:].startswith("cuda")
                    inner = parent
                continue
            case cst.BooleanOperation(left=left) if (
                left is inner and side(facts, left) and not meaning(facts, parent)
            ):
                return None  # rank == 0 and print(x)
            case cst.BaseExpression():
                inner = parent
                continue
            case cst.Expr():
                return None
            case cst.Assign() | cst.AnnAssign() | cst.Return():
                followed = not isinstance(parent, cst.Assign) or not _sets_item(facts, parent)
                return None if followed and (meaning(facts, inner) or isinstance(inner, cst.Tuple)) else inner
            case _:
                return inner
    return inner


def _sets_item(facts: Facts, assigned: cst.Assign) -> bool:
    """Return whether an assignment puts a value where it is not followed: ``config["rank"] = rank``."""
    return any(facts.nodes(cst.Subscript, within=target) for target in assigned.targets)


def _is_device_key(key: cst.BaseExpression) -> bool:
    return "device" in (cst_nodes.string_value(key) or "")


def _is_known_test(facts: Facts, parent: cst.CSTNode, test: cst.BaseExpression) -> bool:
    if side(facts, test) in ("main", "others"):
        return True
    if not isinstance(parent, cst.If):
        return isinstance(parent, cst.IfExp) and bool(meaning(facts, parent))
    return meaning(facts, test) in ("group", "size") and _only_prepares(facts, parent)


def _only_prepares(facts: Facts, test: cst.If) -> bool:
    """Return whether a block below ``if world_size > 1:`` only joins a group, chooses a device, or asks a rank."""
    blocks = [test.body, *([test.orelse] if test.orelse is not None else [])]
    for block in blocks:
        if isinstance(block, cst.If):
            if not _only_prepares(facts, block):
                return False
            continue
        body = block.body.body if isinstance(block, cst.Else) else block.body
        for statement in body:
            parts = statement.body if isinstance(statement, cst.SimpleStatementLine) else (statement,)
            if not all(_prepares(facts, part) for part in parts):
                return False
    return True


def _prepares(facts: Facts, part: cst.CSTNode) -> bool:
    match part:
        case cst.Pass() | cst.Return(value=None):
            return True
        case cst.Expr(value=cst.Call() as call):
            name = facts.qualified(call.func)
            shows = name in libraries.SHOWING_FUNCTIONS or facts.method(call) in libraries.SHOWING_METHODS
            return shows or name.startswith(("torch.distributed.", "torch.cuda."))
        case cst.Assign(value=value, targets=[cst.AssignTarget(target=target)]):
            made = facts.qualified(value.func) if isinstance(value, cst.Call) else ""
            wraps = made in libraries.PARALLEL_WRAPPERS or made == "torch.device"
            return wraps or bool(meaning(facts, value)) or bool(meaning(facts, target)) or _is_map(value)
        case cst.Return(value=value) if value is not None:
            return bool(meaning(facts, value)) or isinstance(value, cst.Integer)
    return False


def _is_map(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Dict) and all(
        isinstance(e, cst.DictElement) and cst_nodes.string_value(e.key) == "" for e in value.elements
    )


def _takes_rank(facts: Facts, call: cst.Call, argument: cst.Arg) -> bool:
    """Return whether a function may be given the rank: one that prints, chooses a device, or is the notebook's."""
    name, method = facts.qualified(call.func), facts.method(call)
    if name in libraries.SETTINGS_MAKERS:
        return False
    if argument.keyword is not None and argument.keyword.value in _KEYWORDS:
        return True
    if facts.called_functions(call) or name in _CASTS:
        return True
    if name in libraries.SHOWING_FUNCTIONS or method in libraries.SHOWING_METHODS:
        return True
    if name in _DEVICES or method in _DEVICES or name.startswith(("torch.cuda.", "torch.distributed.")):
        return True
    if facts.kind(call) in ("arguments", "trainer"):
        if argument.keyword is not None and argument.keyword.value == "local_rank":
            return True
        return isinstance(argument.value, cst.IfExp) and bool(side(facts, argument.value.test))
    return name in libraries.PARALLEL_WRAPPERS
