"""The runtime module keeps what generated code and its readers count on.

What generated code uses is there and takes what it is given; each public function says what the ranks do and
what they wait for, and is tested on two and on three of them. Every name in a generated script is bound.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from nb2ddp.conversion.pipeline import convert_notebook
from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.options import Options
from nb2ddp.rewriting.engine import _GATES
from nb2ddp.rewriting.runtime_calls import helper, helpers
from nb2ddp.source.ipython_syntax import to_python
from nb2ddp.source.notebook import read_notebook
from tests.support import ROOT
from tests.support.helpers import facts_of
from tests.support.names import undefined_names
from tests.support.runtime_calls import Function, check_uses, public

TESTS = ROOT / "tests" / "unit" / "runtime"
FUNCTIONS = {name: node for name, node in public().items() if isinstance(node, Function)}


def test_the_names_that_code_may_use_are_those_of_the_module() -> None:
    assert helpers() == set(public())


def written_out(node: ast.expr) -> list[object]:
    if isinstance(node, ast.IfExp):
        return [*written_out(node.body), *written_out(node.orelse)]
    return [node.value] if isinstance(node, ast.Constant) else []


def test_each_name_that_is_given_to_helper_is_there() -> None:
    named: list[object] = [*_GATES.values()]
    for path in sorted((ROOT / "nb2ddp").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "helper":
                named += written_out(node.args[1])
    assert len(named) > 30
    assert set(named) <= helpers()
    with pytest.raises(ValueError, match="ddp_support defines no gone"):
        helper(facts_of("x = 1"), "gone")


@pytest.mark.parametrize("name", sorted(helpers() - {"init", "init_ranks"}))  # each script calls one of them
def test_a_rules_test_shows_what_is_emitted(name: str) -> None:
    """The rules' tests and cases compare each call with the signature."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "rules").rglob("*.py")]
    assert any(re.search(rf"ddp\.{name}\b", text) for text in texts)


def test_a_use_that_does_not_fit_is_found() -> None:
    check_uses(
        "ddp.init(seed=3)\nddp.share_batch(2, 4, num_generations=8)\nddp.is_main_process\nddp.has_bf16\n"
    )
    for wrong in (
        "ddp.init(seeds=3)",
        "ddp.share_batch(2)",
        "ddp.in_turn(1)",
        "ddp.gone()",
        "if ddp.gone: x",
    ):
        with pytest.raises((TypeError, AssertionError)):
            check_uses(wrong)


# ---- each public function is documented and tested ----------------------------------------------------


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_docstring_says_what_ranks_do_wait_for_and_raise(name: str) -> None:
    node = FUNCTIONS[name]
    said = ast.get_docstring(node) or ""
    assert re.search(r"\b(ranks?|process(es)?)\b", said), "what does each rank do?"
    assert re.search(r"\bwait", said, re.IGNORECASE), "what does a rank wait for? If for nothing, say so."
    raises = any(isinstance(part, ast.Raise) for part in ast.walk(node))
    exits = any(ast.unparse(part.func) == "sys.exit" for part in ast.walk(node) if isinstance(part, ast.Call))
    assert not (raises or exits) or "raise" in said.lower(), "what does it raise?"


def ranks_by_name(path: Path) -> Iterator[tuple[str, set[int]]]:
    """Yield what each test of a file uses of the module, with the numbers of ranks that it runs on.

    Scripts are texts in the test, and in names of its file or of one beside it that it mentions, and the files of a
    folder beside it that it names. Ranks are the
    parameter ``ranks``, or what a call such as ``run(script, 3)`` says; two otherwise.
    """
    module = ast.parse(path.read_text(encoding="utf-8"))
    known: dict[str, ast.AST] = {}
    tests = []
    beside = TESTS.relative_to(ROOT).as_posix().replace("/", ".") + "."
    for node in module.body:
        if isinstance(node, ast.ImportFrom) and f"{node.module}".startswith(beside):
            text = (TESTS / f"{f'{node.module}'.removeprefix(beside)}.py").read_text(encoding="utf-8")
            for other in ast.parse(text).body:
                if isinstance(other, ast.Assign):
                    known.update({t.id: other.value for t in other.targets if isinstance(t, ast.Name)})
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
            tests.append(node)
        elif isinstance(node, ast.FunctionDef):
            known[node.name] = node
        elif isinstance(node, ast.Assign):
            known.update({target.id: node.value for target in node.targets if isinstance(target, ast.Name)})

    def behind(node: ast.AST, seen: set[str]) -> Iterator[ast.AST]:
        for part in ast.walk(node):
            yield part
            if isinstance(part, ast.Name) and part.id in known and part.id not in seen:
                seen.add(part.id)
                yield from behind(known[part.id], seen)

    for test in tests:
        values = [part.value for part in behind(test, set()) if isinstance(part, ast.Constant)]
        texts = [value for value in values if isinstance(value, str)]
        for folder in {text for text in texts if text.isidentifier() and (TESTS / text).is_dir()}:
            texts += [program.read_text(encoding="utf-8") for program in (TESTS / folder).glob("*.py")]
        names = {name for text in texts for name in re.findall(r"\bddp\.(\w+)", text)}
        ranks: set[int] = set()
        for decorator in test.decorator_list:
            if isinstance(decorator, ast.Call) and "ranks" in ast.unparse(decorator.args[0]):
                parts = [part for argument in decorator.args[1:] for part in behind(argument, set())]
                ranks |= {p.value for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, int)}
        for call in (part for part in ast.walk(test) if isinstance(part, ast.Call)):
            called = ast.unparse(call.func)
            if called == "run" or called.startswith("server."):
                given = [ast.unparse(argument) for argument in call.args[1 if called == "run" else 2 :][:1]]
                given += [ast.unparse(keyword.value) for keyword in call.keywords if keyword.arg == "ranks"]
                ranks |= {int(text) for text in given or ["2"] if text.isdecimal()}
        yield from ((name, ranks) for name in names)


def test_each_name_is_tested_on_two_and_on_three_ranks() -> None:
    found: dict[str, set[int]] = {name: set() for name in public()}
    for path in sorted(TESTS.glob("test_*.py")):
        for name, ranks in ranks_by_name(path):
            if name in found:
                found[name] |= ranks
    assert {name: ranks for name, ranks in found.items() if not {2, 3} <= ranks} == {}


# ---- names in generated scripts -----------------------------------------------------------------------

NOTEBOOKS = sorted(
    [*(ROOT / "tests" / "notebooks").glob("*.ipynb"), *(ROOT / "sample_notebooks").glob("*.ipynb")]
)
GRID = [
    Options(),
    Options(batch="scale"),
    Options(batch="scale", single_file=True),
    Options(strategy="balanced"),
    Options(strategy="fsdp"),
]
CASES = [
    pytest.param(rest, id=f"{rest} of {len(GRID)}", marks=[pytest.mark.thorough] if rest else [])
    for rest in range(len(GRID))
]


@pytest.mark.parametrize("rest", CASES)
def test_every_name_in_a_generated_script_is_bound(rest: int) -> None:
    """Each name is, but for those that the notebook itself leaves unbound; one set of options a notebook."""
    sources: dict[str, str] = {}
    for number, path in enumerate(NOTEBOOKS):
        notebook = read_notebook(path)
        own = "\n".join(to_python(cell.source).text for cell in notebook.cells if cell.kind == "code")
        sources[f"{path.stem}/own"] = own
        files = convert_notebook(notebook, options=GRID[(number + rest) % len(GRID)]).files
        sources |= {f"{path.stem}/{name}": text for name, text in files.items() if name.endswith(".py")}
        if SCRIPT in files:
            check_uses(files[SCRIPT])
    assert sum(name.endswith(SCRIPT) for name in sources) > len(NOTEBOOKS) * 0.8
    found = undefined_names(sources)
    own_names = {path.stem: found.get(f"{path.stem}/own", set()) for path in NOTEBOOKS}
    assert {name: names for name, names in found.items() if names - own_names[name.split("/")[0]]} == {}


def test_an_unbound_name_is_found() -> None:
    assert undefined_names({"a": "x = 1\nprint(x)\n", "b": "print(fewer_steps)\n"}) == {"b": {"fewer_steps"}}
