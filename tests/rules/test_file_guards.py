"""Where an `if` looks at files before training, rank 0 goes first and all ranks find the same."""

from __future__ import annotations

from textwrap import dedent

import pytest

from nb2ddp.rules.file_guards import rule
from tests.support.helpers import apply, check_rewritten, check_untouched

HEAD = "import glob, os\nfrom pathlib import Path\nfrom trl import SFTTrainer\n"
TRAIN = "trainer = SFTTrainer(model)\ntrainer.train()\n"
WITH = "with ddp.main_process_first():  # nb2ddp: rank 0 makes the files, the others find them\n"

LEFT_ALONE = {
    "no file is looked at": "if big:\n    x = 1\n",
    "an attribute, not a call": "if cache.exists:\n    x = 1\n",
    "dead code": 'if False:\n    if os.path.exists("d"):\n        os.remove("d")\n',
    "a function, which its callers decide about": (
        'def prepare():\n    if not os.path.exists("d"):\n        os.makedirs("d")\n'
    ),
    "waiting for a file": 'while not os.path.exists("d"):\n    if os.path.exists("e"):\n        break\n',
    "the answer is only kept": 'found = os.path.exists("d")\n',
}

GUARDED = {
    "os.path": 'if not os.path.exists("d"):\n    os.makedirs("d")\n',
    "pathlib": 'if not Path("d").is_dir(): Path("d").mkdir()\n',
    "glob": 'if len(glob.glob("*.txt")) > 3:\n    x = 1\n',
    "a list of files": 'if "d" in os.listdir("."):\n    x = 1\n',
    "a conditional value": 'data = load("d") if os.path.exists("d") else make("d")\n',
    "in the second test": 'if big:\n    x = 1\nelif os.path.isfile("d"):\n    x = 2\nelse:\n    x = 3\n',
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_what_no_file_decides_is_left_alone(source: str) -> None:
    check_untouched(rule, HEAD + source + TRAIN)


def test_after_training_rank_0_is_alone() -> None:
    check_untouched(rule, HEAD + TRAIN + 'if not os.path.exists("d"):\n    os.makedirs("d")\n')


def test_a_notebook_that_does_not_train_is_left_alone() -> None:
    check_untouched(rule, HEAD + 'if not os.path.exists("d"):\n    os.makedirs("d")\n')


@pytest.mark.parametrize("source", GUARDED.values(), ids=GUARDED.keys())
def test_rank_0_looks_first(source: str) -> None:
    inside = "".join(f"    {line}\n" for line in source.splitlines())
    check_rewritten(rule, HEAD + source + TRAIN, HEAD + WITH + inside + TRAIN)


@pytest.mark.parametrize(
    ("header", "test"),
    [
        ("from os.path import exists", 'exists("d")'),
        ("import os.path as osp", 'osp.isdir("d")'),
        ("from glob import glob as find", 'find("*.txt")'),
    ],
)
def test_the_question_is_known_by_its_import(header: str, test: str) -> None:
    head = f"{header}\nfrom trl import SFTTrainer\n"
    before = f"{head}if {test}:\n    x = 1\n{TRAIN}"
    check_rewritten(rule, before, f"{head}{WITH}    if {test}:\n        x = 1\n{TRAIN}")


def test_comments_and_texts_stay_as_they_are() -> None:
    check_rewritten(
        rule,
        HEAD
        + '# the data\nif os.path.exists("d"):  # there\n  text = """\none\n  two"""\n  # end\nx = 1\n'
        + TRAIN,
        HEAD
        + "# the data\n"
        + WITH
        + '    if os.path.exists("d"):  # there\n      text = """\none\n  two"""\n      # end\nx = 1\n'
        + TRAIN,
    )


def test_neighbours_share_a_block() -> None:
    check_rewritten(
        rule,
        HEAD + 'if os.path.exists("a"):\n    a = 1\nif os.path.exists("b"):\n    b = 1\n' + TRAIN,
        HEAD
        + WITH
        + '    if os.path.exists("a"):\n        a = 1\n    if os.path.exists("b"):\n        b = 1\n'
        + TRAIN,
    )


@pytest.mark.parametrize("around", ["for d in folders:", "with lock:", "if big:", "try:"])
def test_only_the_if_is_guarded_not_what_stands_around_it(around: str) -> None:
    end = "except OSError:\n    pass\n" if around == "try:" else ""
    before = f'{around}\n    write(d)\n    if not os.path.exists("d"):\n        os.makedirs("d")\n{end}'
    after = (
        f"{around}\n    write(d)\n    {WITH}"
        f'        if not os.path.exists("d"):\n            os.makedirs("d")\n{end}'
    )
    check_rewritten(rule, HEAD + before + TRAIN, HEAD + after + TRAIN)


def test_an_if_inside_a_guarded_if_needs_no_guard_of_its_own() -> None:
    result = apply(
        rule,
        HEAD + 'if os.path.exists("a"):\n    if os.path.exists("b"):\n        x = 1\n' + TRAIN,
    )
    assert result.code[1].count("main_process_first") == 1


def test_training_that_a_file_decides_about_is_noted_and_never_guarded() -> None:
    code = dedent("""\
        import os
        from trl import SFTTrainer
        trainer = SFTTrainer(model)
        if os.path.exists("checkpoint"):
            trainer.train(resume_from_checkpoint=True)
        else:
            trainer.train()
        """)
    result = check_untouched(rule, code)
    [note] = result.notes
    assert note.place is not None
    assert (note.place.cell, note.place.line) == (1, 4)
    assert "for all ranks or none" in note.why


@pytest.mark.parametrize(
    "source",
    [
        'if os.path.exists("d"):\n    shutil.rmtree("d")\n',
        'if os.path.isdir("d"):\n    for f in os.listdir("d"):\n        os.remove(os.path.join("d", f))\n',
        'if Path("log").exists():\n    os.remove("log")\n    print("gone")\n',
    ],
)
def test_one_rank_deletes_or_a_later_one_would_delete_what_rank_0_made(source: str) -> None:
    inside = "".join(f"        {line}\n" for line in source.splitlines())
    gated = "with ddp.main_process_only() as is_main:  # nb2ddp: one rank deletes\n    if is_main:\n" + inside
    check_rewritten(rule, "import shutil\n" + HEAD + source + TRAIN, "import shutil\n" + HEAD + gated + TRAIN)


def test_all_ranks_leave_a_loop_where_rank_0_does() -> None:
    """Gated, rank 0 would go on with the next round and the others would not."""
    loop = """\
for name in names:
    if big:
        x = 1
    elif os.path.exists(name):
        os.remove(name)
        continue
    y = 1
"""
    decided = loop.replace("os.path.exists(name)", "ddp.from_main_process(lambda: os.path.exists(name))")
    check_rewritten(rule, HEAD + loop + TRAIN, HEAD + decided + TRAIN)
