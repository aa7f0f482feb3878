"""Trainers as notebooks have them: on several ranks they are the run of one process, or the run says what differs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nb2ddp.runtime import support_module, used_names
from tests.support.ranks import Ended, RankServer
from tests.unit.runtime.conftest import RANK_COUNTS, START
from tests.unit.runtime.trainer_tools import TOOLS

PROGRAMS = sorted((Path(__file__).parent / "trainers").glob("*.py"))
ON_THREE = (
    "language_model",
    "dropout",
    "dropout_in_one_micro_batch",
    "evaluates_and_predicts",
    "library_prints_once",
    "evened_out_padded",
    "evened_out_padding_free",
    "notes_logs_and_prints",
    "one_micro_batch",
    "saves_and_resumes",
)
# A neighbour shows much of the same; `make test-all` runs them.
SELDOM = """
attribute_of_a_librarys_model best_of_each_fold counts_in_the_state counts_in_training_alone draws_from_the_third_step
dropout_in_checkpoints evened_out_weights gradient_clipping_and_two_groups grouped_by_length label_smoothing_of_tokens
later_folds list_of_functions loss_of_later_steps method_of_one_object mixup moving_average_of_losses
prints_every_fifth_call sampler_that_grows shape_in_a_dict values_that_come_and_go a_table_that_grows
asks_for_a_process_group batch_set_late best_loss_so_far cached_function class_weights
collator_that_a_callback_changes dropout_in_three_micro_batches dropout_of_joined_views epochs_of_unlike_length
evened_out_but_for_dropout evened_out_sft figures_near_the_tolerance gradients_dropped_late labels_in_a_column
loss_counts_its_calls
loss_by_function main_process_keeps one_micro_batch_keeps_arrays one_micro_batch_list one_micro_batch_of_labels
one_micro_batch_sets_numbers rows_that_do_not_count sampler_that_knows_ranks seconds_in_an_attribute slot_that_two_set
substeps_and_hooks takes_items_in_its_loss three_micro_batches values_that_are_replaced writes_into_its_batch
""".split()
RUNS = [
    pytest.param(
        path,
        ranks,
        id=f"{path.stem}-{ranks}",
        marks=pytest.mark.thorough if again or path.stem in SELDOM else (),
    )
    for path in PROGRAMS
    for ranks, again in ([(2, True), (3, False)] if path.stem in ON_THREE else [(2, False)])
]


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in items:
            yield from flat(item, f"{path}.{name}")
    else:
        yield path, value


def apart(one: Any, other: Any, least: float) -> float:
    """Return the largest difference of two notes, relative to the value or to ``least``."""
    here, there = dict(flat(one)), dict(flat(other))
    assert here.keys() == there.keys()
    found = 0.0
    for name, value in here.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            found = max(found, abs(value - there[name]) / max(abs(value), least))
        else:
            assert value == there[name], name
    return found


def printed(run: Ended) -> list[str]:
    lines = run.ranks[0].out.splitlines()
    return [line for line in lines if not line.startswith("nb2ddp") and "_runtime" not in line]


@pytest.mark.parametrize(("program", "ranks"), RUNS)
def test_the_run_of_one_process(trainers: RankServer, tmp_path: Path, program: Path, ranks: int) -> None:
    text = program.read_text(encoding="utf-8")
    expected = text.removeprefix("# ").partition(":")[0]
    one, several = trainers.compare(tmp_path, START + TOOLS + text, ranks, limit=120)
    assert one.codes == [0], one.text
    assert not any(several.codes), several.text
    first, *others = several.notes
    assert all(other["params"] == first["params"] for other in others), "the ranks are not bit-equal"
    said = several.ranks[0].err
    assert ("every rank computes all micro-batches" in said) == (expected == "said"), several.text
    assert said.count("caches what it gives") == (program.stem == "cached_function")
    assert program.stem != "batch_norm" or "a check failed" not in several.text
    assert (
        program.stem != "figures_in_a_new_dict" or "a check failed at step 2:" in said
    )  # of the second Trainer
    if expected == "near":
        assert "micro-batches draw random numbers" in said
        return
    single = one.notes[0]
    assert apart(single.pop("params"), first.pop("params"), 0.1) < 2e-4, several.text
    assert apart(single, first, 1e-2) < 2e-6, several.text
    assert printed(one) == printed(several)
    assert f"{ranks} replicas equal" in several.ranks[0].out


OWN_LOSS = """
class Own(Trainer):
    def compute_loss(self, model, inputs, *args, **options):
        out = model(**inputs)
        return out.loss + {late}
rows = cls_rows(160)
go(Own(bert(), args(per_device_train_batch_size=8, gradient_accumulation_steps=1, max_steps=20), train_dataset=rows))
"""


@pytest.mark.parametrize(
    "late",
    [
        "(self.state.global_step > 9) * torch.cdist(out.logits, out.logits).mean()",
        # of two rows it takes both
        "out.logits[:, 0].topk(min(8 - self.state.global_step // 5, len(out.logits))).values.mean()",
    ],
)
def test_a_loss_of_the_notebooks_own_is_looked_at_again(
    trainers: RankServer, tmp_path: Path, late: str
) -> None:
    ended = trainers.run(tmp_path, START + TOOLS + OWN_LOSS.format(late=late), 2, limit=120)
    assert not any(ended.codes), ended.text
    assert "its loss is no sum or mean over its rows. From here on none is divided" in ended.ranks[0].err, (
        ended.text
    )


@pytest.mark.parametrize(
    ("count", "travels"), [(1, True), (3, True), (4, False), (6, True), (14, True), (16, False)]
)
def test_what_drops_out_in_rows_travels_where_micro_batches_may_be_left_over(
    count: int, travels: bool
) -> None:
    script = (
        f"ddp.wrap_trainer(trainer)\nTrainingArguments(gradient_accumulation_steps = {count}, seed = 1)\n"
    )
    assert ("dropout_rows" in used_names(script, "ddp")) == travels


@pytest.mark.parametrize(
    ("imports", "travels"),
    [
        ("import torch, os\nfrom transformers import Trainer", False),
        ("if True:\n    import os, evaluate.steps", True),  # which is beside the notebook
        ("from transformers import Trainer\nimport os, tracker as t", True),
        ("from tracker.runs import Run", True),
    ],
)
def test_what_sees_writes_travels_where_modules_out_of_sight_may_write(
    tmp_path: Path, imports: str, travels: bool
) -> None:
    (tmp_path / "evaluate").mkdir()
    (tmp_path / "evaluate/steps.py").write_text("def prepare(): open('a', 'w')\n")
    script = f"{imports}\nddp.wrap_trainer(trainer)\n"
    assert ("repeated_writes" in used_names(script, "ddp", tmp_path)) == travels


def test_what_gathers_rows_travels_with_scripts_of_sentence_transformers() -> None:
    names = used_names("from sentence_transformers import losses\nddp.wrap_trainer(trainer)\n", "ddp")
    assert "_run.gathering = " in support_module(names)
    assert "_run.gathering = " not in support_module(used_names("ddp.wrap_trainer(trainer)\n", "ddp"))


def test_a_trainers_script_leaves_libraries_alone(trainers: RankServer, tmp_path: Path) -> None:
    program = """
import sqlite3
before = torch.autograd.backward, torch.autograd.grad, np.save, sqlite3.connect
t = Trainer(llama(), args(max_steps=1), train_dataset=lm_rows(16), data_collator=pad)
go(t)
note(same=before == (torch.autograd.backward, torch.autograd.grad, np.save, sqlite3.connect))
"""
    ended = trainers.run(tmp_path, START + TOOLS + program, 2, limit=120)
    assert [notes["same"] for notes in ended.notes] == [True, True], ended.text


@pytest.mark.parametrize("ranks", RANK_COUNTS)
def test_an_evaluation_alone_is_divided(trainers: RankServer, tmp_path: Path, ranks: int) -> None:
    program = """
calls = [0]
class Own(Trainer):
    def prediction_step(self, *a, **k):
        calls[0] += 1
        return super().prediction_step(*a, **k)
t = Own(bert(), args(), eval_dataset=cls_rows(21), compute_metrics=lambda p: {"sum": float(p.predictions.sum())})
ddp.init_process_group()
ddp.prepare_trainer(t)
figures = t.evaluate()
note(figures=[figures["eval_loss"], figures["eval_sum"]], calls=calls[0])
"""
    one, several = trainers.compare(tmp_path, START + TOOLS + program, ranks, limit=120)
    assert not any((*one.codes, *several.codes)), several.text
    for notes in several.notes:
        assert notes["figures"] == pytest.approx(one.notes[0]["figures"], rel=1e-6)
        assert notes["calls"] == one.notes[0]["calls"] == 6


@pytest.mark.parametrize("ranks", RANK_COUNTS)
def test_a_trainer_that_knows_the_ranks_trains_one_model(
    trainers: RankServer, tmp_path: Path, ranks: int
) -> None:
    """As GRPO's does: it divides the rows by itself."""
    start = "import ddp_support as ddp\nrank, local_rank, world_size = ddp.init_ranks(seed=0)\n"
    program = """
size, steps = ddp.share_batch(2, 6)
a = args(per_device_train_batch_size=size, gradient_accumulation_steps=steps, max_steps=3)
t = Trainer(llama(), a, train_dataset=lm_rows(64), data_collator=pad)
ddp.init_process_group()
ddp_model = ddp.wrap_rank_trainer(t)
t.train()
ddp.check_replicas(ddp_model)
note(ranks=t.args.world_size, params=[p.detach() for p in t.model.parameters()])
"""
    one, several = trainers.compare(tmp_path, start + TOOLS + program, ranks, limit=120)
    assert not any((*one.codes, *several.codes)), several.text
    assert all(notes == several.notes[0] for notes in several.notes)
    assert several.notes[0]["ranks"] == ranks
    for own, expected in zip(several.notes[0]["params"], one.notes[0]["params"], strict=True):
        assert np.array(own) == pytest.approx(np.array(expected), abs=1e-5)
    assert f"{ranks} replicas equal" in several.ranks[0].out


@pytest.mark.parametrize(
    "which", ["rows[::-1] if rank else rows", "rows + rows[: 9 * rank]", "rows[: 21 - 9 * rank]"]
)
def test_where_ranks_evaluate_other_batches_those_of_rank_0_count(
    trainers: RankServer, tmp_path: Path, which: str
) -> None:
    program = f"""
rows = cls_rows(21)
t = Trainer(bert(), args(), eval_dataset={which})
ddp.init_process_group()
ddp.prepare_trainer(t)
note(loss=t.evaluate()["eval_loss"], predicted=t.predict(t.eval_dataset).predictions.tolist())
"""
    one, several = trainers.compare(tmp_path, START + TOOLS + program, 2, limit=120)
    assert not any((*one.codes, *several.codes)), several.text
    for notes in several.notes:
        assert notes["loss"] == pytest.approx(one.notes[0]["loss"], rel=1e-6)
        assert np.array(notes["predicted"]) == pytest.approx(np.array(one.notes[0]["predicted"]), abs=1e-6)
    assert several.ranks[0].err.count("the ranks evaluate different batches: rank 0's count for all") == 1


def test_what_travels_with_a_script_stays_small() -> None:
    """Lines beside a script, blank lines and docstrings counted; less is better."""
    scripts = {
        "a Trainer": ("init", "wrap_trainer", "check_replicas", "finish"),
        "a Trainer that evaluates": ("init", "wrap_trainer", "predictions", "check_replicas", "finish"),
        "a loop": ("init", "parallelize"),
    }
    lines = {name: support_module(frozenset(names)).count("\n") for name, names in scripts.items()}
    print(lines)
    assert lines["a Trainer"] <= 4435
    assert lines["a Trainer that evaluates"] <= 4635
    assert lines["a loop"] <= 5550
    assert "class _Predictions:" not in support_module(frozenset(scripts["a Trainer"]))
    assert "class _Split:" not in support_module(frozenset(scripts["a Trainer"]))
    assert "class _Turns:" not in support_module(frozenset(scripts["a loop"]))


# steps, micro-batches of each, their rows, what the rows are, and the share of the steps that checks may take
COSTS = [
    (60, 1, 8, "plain", 0.03),
    pytest.param(60, 1, 8, "drops", 0.03, marks=pytest.mark.thorough),
    (60, 1, 8, "padded", 0.03),
    (60, 1, 8, "counted", 0.03),
    pytest.param(60, 1, 8, "a sum", 0.03, marks=pytest.mark.thorough),
    pytest.param(60, 1, 4, "plain", 0.03, marks=pytest.mark.thorough),
    pytest.param(300, 1, 8, "padded", 0.01, marks=pytest.mark.thorough),
    pytest.param(300, 1, 8, "plain", 0.01, marks=pytest.mark.thorough),
    pytest.param(60, 2, 2, "plain", 0.03, marks=pytest.mark.thorough),
    pytest.param(60, 2, 2, "drops", 0.03, marks=pytest.mark.thorough),
    pytest.param(60, 2, 4, "a sum", 0.03, marks=pytest.mark.thorough),
    pytest.param(60, 4, 2, "plain", 0.03, marks=pytest.mark.thorough),
    pytest.param(300, 4, 2, "drops", 0.01, marks=pytest.mark.thorough),
]


@pytest.mark.parametrize(("steps", "count", "size", "kind", "most"), COSTS)
def test_checks_cost_little(
    trainers: RankServer, tmp_path: Path, steps: int, count: int, size: int, kind: str, most: float
) -> None:
    """Count tokens in forward() and in backward(), of the rank that computes the most of a step."""
    program = f"""
def padded(rows):
    labels = torch.tensor([row["labels"][0] % 3 for row in rows])
    return {{**pad(rows), "labels": labels}}
rows, collate = cls_rows(640), None
if "{kind}" in ("padded", "counted", "a sum"):
    rows, collate = lm_rows(640, 8, 60), pad if "{kind}" == "a sum" else padded
model = llama() if "{kind}" == "a sum" else bert(drop=0.1 * ("{kind}" == "drops"))
sizes = {{"per_device_train_batch_size": {size}, "gradient_accumulation_steps": {count}}}
a = args(**sizes, max_steps={steps}, logging_steps={steps})
t = Trainer(model, a, train_dataset=rows, data_collator=collate)
ddp.init_process_group()
ddp.wrap_trainer(t)
ddp.computed, ddp.of_all, begin = [0] * {steps}, [0] * {steps}, t._turns.begin
def counted(module, args, given, out):
    def count(*_):
        ddp.computed[t.state.global_step] += given["input_ids"].numel()
    count()
    if "{kind}" == "counted":  # from 0: a count that is set anew and one that is added to are alike in the first step
        t.tokens = getattr(t, "tokens", 0) + given["input_ids"].ne(0).sum().item()
    if out.logits.requires_grad:
        out.logits.register_hook(count)
def begun(samples):
    ddp.of_all[t.state.global_step] = sum(2 * of["input_ids"].numel() for of in samples)
    begin(samples)
model.register_forward_hook(counted, with_kwargs=True)
t._turns.begin = begun
t.train()
ddp.check_replicas(t.model)
note(computed=ddp.computed, of_all=ddp.of_all, checked=ddp._run.checks["checked"])
"""
    ended = trainers.run(tmp_path, START + TOOLS + program, 2, limit=120)
    assert not any(ended.codes), ended.text
    assert "WARNING" not in ended.text
    longest = [max(of) for of in zip(*(notes["computed"] for notes in ended.notes), strict=True)]
    shares = [2 * own / whole for own, whole in zip(longest, ended.notes[0]["of_all"], strict=True)]
    assert min(shares) <= 1
    assert 0.9 < sum(max(share - 1, 0) for share in shares) < most * steps, shares
    assert ended.notes[0]["checked"] >= 1 + (steps == 300)


def test_a_trainer_that_knows_the_ranks_keeps_their_random_numbers(
    trainers: RankServer, tmp_path: Path
) -> None:
    """Where each rank has a seed of its own, as GRPO's ranks do, they sample other completions."""
    start = "import ddp_support as ddp\nrank, local_rank, world_size = ddp.init_ranks(seed=0)\n"
    program = """
t = Trainer(llama(), args(), train_dataset=lm_rows(64), data_collator=pad)
torch.manual_seed(7 + rank)
ddp.init_process_group()
ddp.wrap_rank_trainer(t)
note(seed=torch.initial_seed(), drawn=torch.rand(1).item())
"""
    ended = trainers.run(tmp_path, start + TOOLS + program, 2, limit=120)
    assert not any(ended.codes), ended.text
    assert [notes["seed"] for notes in ended.notes] == [7, 8]
    assert ended.notes[0]["drawn"] != ended.notes[1]["drawn"]
