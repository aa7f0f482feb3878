"""What rank 0 does alone before training ends: writing, starting programs, generating."""

from __future__ import annotations

import pytest

from nb2ddp.analysis import rank_zero_work as work
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.unit.analysis.questions import LOAD, MAKE, call_to

START = (
    "import csv, io, os, tempfile, torch\nfrom pathlib import Path\n"
    "from trl import SFTTrainer\ntrainer = SFTTrainer(model=m)\n"
)
RUNS = "only rank 0 runs it"
OWN = "with tempfile.TemporaryDirectory() as own:\n    "


@pytest.mark.parametrize(
    ("code", "call", "why"),
    [
        ("torch.save(m, 'a.pt')", "torch.save", work.WRITES),
        ("open('a', mode='w')", "open", work.WRITES),
        ("folder = Path('a') / 'b'\nfolder.mkdir()", "folder.mkdir", work.WRITES),
        ("os.system('make')", "os.system", RUNS),
        ("os.system('pip install a')", "os.system", None),
        ("open('a')", "open", None),
        ("os.makedirs('a', exist_ok=True)", "os.makedirs", None),
        ("torch.save(m, f=io.BytesIO())", "torch.save", None),
        (f"{OWN}torch.save(m, own + '/a.pt')", "torch.save", None),
        ("trainer.save_model('a')", "trainer.save_model", None),  # it writes once by itself
        ("text.replace('a', 'b')", "text.replace", None),
    ],
)
def test_why_one_rank_alone_makes_a_call(code: str, call: str, why: str | None) -> None:
    facts = facts_of(START, code)
    node = call_to(facts, call)
    assert work.why_alone(facts, node) == why


# ---- files that stay open ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "path", "stays"),
    [
        ("log = open('a', 'a')", "'a'", True),
        ("writer = csv.writer(open('a', 'w'))", "'a'", True),
        ("log = open('a', 'w')\nlog.close()\ntrainer.train()", "'a'", False),
        ("log = open('a', 'w')\ntrainer.train()\nlog.close()", "'a'", True),
        ("open('a', 'w').write(x)", "'a'", False),
        ("with open('a', 'a') as log:\n    log.write(x)", None, False),
        ("log = open('a')", None, False),
    ],
)
def test_a_file_that_is_kept_open(code: str, path: str | None, stays: bool) -> None:
    facts = facts_of(START, code)
    (call,) = [call for call in facts.calls if facts.qualified(call.func) == "open"]
    kept = work.kept_open(facts, call)
    assert (None if kept is None else cst_nodes.code_of(kept)) == path
    assert work.stays_open(facts, call) == stays


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("log = open('a', 'w')\ntrain()\nlog.close()", "log.close()"),
        ("log = open('a', 'w')\nif x:\n    log.close()", None),
        ("def f():\n    log = open('a', 'w')\n    log.close()", None),
    ],
)
def test_the_statement_that_closes_a_file(code: str, expected: str | None) -> None:
    facts = facts_of(START, code)
    found = work.closing_statement(facts, call_to(facts, "open("))
    assert (None if found is None else cst_nodes.code_of(found).strip()) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("torch.save(m, path)\n    return torch.load(path)", True),
        ("torch.save(m, path)\n    return torch.load(other)", False),
        ("torch.load(path)\n    torch.save(m, path)", False),
    ],
)
def test_a_function_that_reads_its_file_again(body: str, expected: bool) -> None:
    facts = facts_of(START, f"def f(path):\n    {body}\n")
    assert work.reads_back(facts, call_to(facts, "torch.save")) == expected


# ---- generating ----------------------------------------------------------------------------------

TRAIN = f"{MAKE}trainer = SFTTrainer(model=model, train_dataset=data)\ntrainer.train()"
LOOP = "answers = []\nfor x in ['a', 'b']:\n    answers.append(model.generate(x))"


def lines(*cells: str) -> tuple[list[str], dict[str, list[str]]]:
    """Return the statements that rank 0 runs alone, and those whose names it broadcasts."""
    facts = facts_of(LOAD, *cells)
    gated, shared = work.generation(facts)
    ordered = sorted(gated, key=facts.order)
    return [cst_nodes.code_of(s).strip() for s in ordered], {
        cst_nodes.code_of(s).strip(): names for s, names in shared.items()
    }


@pytest.mark.parametrize(
    ("cells", "gated", "shared"),
    [
        (
            ["text = model.generate(x)\ny = 1\nshown = text[0]\nprint(shown)", TRAIN],
            ["text = model.generate(x)", "shown = text[0]", "print(shown)"],
            {},
        ),
        (
            ["data = model.generate(x)\nprint(data)", TRAIN],
            ["data = model.generate(x)"],
            {"data = model.generate(x)": ["data"]},
        ),
        (
            ["data = model.eval().generate(x)\nprint(data)", TRAIN],
            [],  # each rank does, and goes on with the model
            {"data = model.eval().generate(x)": ["data"]},
        ),
        ([TRAIN, "text = model.generate(x)"], [], {}),
        (["text = model.generate(x)"], [], {}),  # nothing trains
        ([LOOP, "print(answers)", TRAIN], [LOOP.partition("\n")[2], "print(answers)"], {}),
    ],
)
def test_what_rank_0_generates(cells: list[str], gated: list[str], shared: dict[str, list[str]]) -> None:
    assert lines(*cells) == (gated, shared)
