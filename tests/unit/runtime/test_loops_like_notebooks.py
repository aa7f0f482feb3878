"""Loops as notebooks have them: on several ranks they are the run of one process, or the run says that they are not."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from tests.support.ranks import Ended, RankServer
from tests.unit.runtime.conftest import START
from tests.unit.runtime.loop_tools import TOOLS
from tests.unit.runtime.test_parallelize import TOLERANCE, distance

PROGRAMS = sorted((Path(__file__).parent / "loops").glob("*.py"))
SCRIPT = START + TOOLS
# On three ranks the rows of a batch of four do not divide; two show most of what can go wrong.
ON_THREE = (
    "a_backward_for_each_loss",
    "a_form_for_some_ranks",
    "accumulation",
    "accumulation_and_clipping",
    "bert",
    "counts_as_tensors",
    "encode_and_decode",
    "experts",
    "fewer_rows_than_ranks",
    "ignored_labels",
    "mlp",
    "moving_average_target",
    "sparse_embeddings",
    "states_in_dimension_1",
    "teacher_and_evaluation",
    "two_models",
)
# A neighbour shows much of the same; `make test-all` runs them.
SELDOM = """
a_mean_over_rows_that_the_model_selects_by_a a_new_head_and_clipping a_number_that_is_returned_later_and_first
an_ignored_label_of_its_own_in_large_batches an_ignored_label_of_its_own_that_comes_late
batch_norm_and_a_backward_for_each_loss batch_norm_and_two_calls_for_a_loss batch_norm_beside_a_sparse_embedding
batches_with_no_label_and_masks_of_other_dtypes class_weights_in_the_model_of_a_class_that class_weights_inside
class_weights_that_a_notebook_replaces_beside_a compiled_function contrastive_later counts_as_numbers
dropout_and_noise dropout_of_attention_and_of_what_an_lstm_gives fewer_targets_among_one_rank_s_rows
forks_the_generators_for_dropout gradients_that_are_kept_beyond_zero_grad history_in_a_list hook_on_a_layer
kl_weight_ramps_up labels_are_ignored_late labels_with_weights_that_the_model_finds list_of_tensors_of_unlike_length
more_rows_in_an_embedding no_row_has_a_label none_for_one_rank_s_rows nothing_to_add_for_one_rank_s_rows
numpy_mixes_rows penalty_on_parameters_one_of_them_not_used retained_gradients second_derivative_alone
sequence_first_as_long_as_the_batch shapes_are_shown sparse_embeddings_alone squeeze_of_a_last_batch_of_three_rows
targets_that_are_missing_late two_calls_before_a_backward_for_each_the_first
two_calls_before_a_backward_for_each_the_second values_that_two_arguments_choose_together_all
weights_of_losses_in_the_model weights_of_values_that_are_alike_at_first words_for_some_rows
a_mask_of_floats_that_is_full_at_first a_model_before_the_divided_one a_number_without_a_gradient_for_one_rank_s_rows
a_rank_s_rows_are_masked a_sparse_matrix an_object_of_the_notebook_s_own asks_for_gradients batch_norm_by_hand
configuration_changes contrastive conv dict_input ema_and_copies extra_criterion frozen_batch_norm forward_by_name
hooks_that_count label_smoothing manual_sgd model_in_a_class siamese sequence_first parts_are_called
running_mean_by_hand temperature_attribute writes_into_its_arguments a_discriminator_that_sees_both_kinds_before_a
a_distribution a_latent_that_forward_fits a_layer_s_forward_is_replaced a_part_is_called_before_the_model
a_rank_s_rows_have_no_label a_scripted_model a_sparse_embedding_that_one_rank_s_rows_do_not
an_accelerator_that_has_ended_a_training_and another_form_in_some_calls asks_for_gradients_of_outputs
attention_over_the_batch batch_norm_that_comes_later branch_with_a_norm_of_weights class_weights
compiled_after_the_optimizer counter_of_its_own custom_gradient decides_by_a_norm eval_with_grad_and_without
figures_as_numbers forks_the_generators frozen_later function_replaced gate_that_opens global_flag
gradients_of_parameters_that_the_loop_asks_for hard_examples hook_of_the_notebook hook_on_a_gradient
input_with_gradient lazy lightning_by_hand llama loss_is_a_sum method_evaluated_first noise_in_forward numpy_decides
object_in_the_arguments output_dict_of_its_own output_with_slots padding_that_comes_late
parametrizations_that_are_cached part_is_not_used penalty_on_the_input_s_gradient_norm prints_now_and_then
returns_what_it_asks_gradients_of rnn_sequence_first_with_states single_rows statistics_of_the_rows step_as_tensor
toggled_parameters two_trainings unfrozen_later writes_a_file_by_itself
""".split()
# Some of their batches have fewer rows than there are ranks, or one of their tasks needs whole ones.
WITH_WHOLE_BATCHES = (
    "cache_of_a_library",
    "fewer_rows_than_ranks",
    "generates_with_a_cache",
    "mode_by_name",
    "single_rows",
    "two_calls_before_a_backward_for_each_the_first",
    "two_calls_before_a_backward_for_each_the_second",
)
# What each call is given decides, or what a batch holds.
BATCH_BY_BATCH = (
    "as_many_as_are_selected",
    "checkpointed_from_outside",
    "forward_derivatives",
    "hooks_of_saved_tensors",
    "object_in_the_arguments",
    "parts_of_parts_and_objects",
    "outputs_in_ever_more_forms",
)
# Each of two ranks may compute three quarters of the rows that one process computes.
SHARED = (
    "figures_as_numbers",
    "frozen_backbone_and_batch_norm",
    "moving_average_that_is_evaluated",
    "parts_are_called",
    "parts_of_a_contrastive_model",
    "parts_of_a_critic_with_penalty",
    "parts_of_parts_and_objects",
    "parts_that_are_called_step_by_step",
    "rnn_sequence_first_with_states",
    "states_in_dimension_1",
    "teacher_and_evaluation",
)
COUNT = """
def count_rows():
    plain, ddp.counted = F.linear, [0, 0]
    def linear(x, *rest):
        ddp.counted[torch.is_grad_enabled()] += x.numel() // x.shape[-1]
        return plain(x, *rest)
    F.linear = linear
count_rows()
del count_rows
"""


def difference(one: Ended, several: Ended) -> float:
    assert one.codes == [0], one.text
    assert not any(several.codes), several.text
    expected, first, *others = one.notes[0], *several.notes
    assert all(other == first for other in others), "the ranks are not bit-equal"
    printed: list[Any] = [
        [line for line in run.ranks[0].out.splitlines() if not line.startswith("nb2ddp")]
        for run in (one, several)
    ]
    apart = max(distance(expected[name], first[name]) for name in expected)
    return apart if printed[0] == printed[1] else float("inf")


def expected_of(program: Path) -> str:
    return program.read_text(encoding="utf-8").removeprefix("# ").partition(":")[0]


RUNS = [
    pytest.param(
        path,
        ranks,
        id=f"{path.stem}-{ranks}",
        marks=pytest.mark.thorough if (ranks == 3) != (path.stem in ON_THREE) or path.stem in SELDOM else (),
    )
    for path in PROGRAMS
    for ranks in ((2, 3) if expected_of(path) == "same" else (2,))
]


@pytest.mark.parametrize(("program", "ranks"), RUNS)
def test_the_run_of_one_process(server: RankServer, tmp_path: Path, program: Path, ranks: int) -> None:
    expected = expected_of(program)
    dense = {"NB2DDP_CHECKS": "100"} if expected == "whole" else {}  # by default a busy machine has fewer
    script = program.read_text(encoding="utf-8")
    if counts := program.stem in SHARED and ranks == 2:
        script, dense = f"{COUNT}{script}note(counted=ddp.counted)\n", {"NB2DDP_CHECKS": "off"}
    one, several = server.compare(tmp_path, SCRIPT + script, ranks, environment=dense)
    if counts:
        whole, *of_ranks = (notes.pop("counted") for notes in (*one.notes, *several.notes))
        assert all(rows <= 0.75 * of_one for own in of_ranks for rows, of_one in zip(own, whole, strict=True))
    apart, said = difference(one, several), several.ranks[0].err
    assert len(one.notes[0]["losses"]) + len(one.notes[0]["figures"]) > 2
    if expected != "same or said":
        assert apart < TOLERANCE, several.text
    assert apart < TOLERANCE or "a check failed" in said, several.text
    if expected in ("whole", "said"):
        each = "a batch is computed by every rank" if program.stem in BATCH_BY_BATCH else ""
        assert (each or "every rank computes whole batches") in said.replace("\n", " "), several.text
    if expected == "whole" and program.stem != "writes_into_its_arguments":  # which has three models
        assert said.count("WARNING") == 1
        assert "WARNING" not in several.ranks[1].err
    if expected == "same" and program.stem not in WITH_WHOLE_BATCHES:
        assert "saves no time" not in said, several.text
        assert "whole batches" not in said, several.text


# No optimizer, two of them, one after the other, one that a method of the model makes, and parts that are called.
FOUND = ("manual_sgd", "gan_with_penalty", "two_trainings", "lightning_by_hand", "parts_are_called")


@pytest.mark.parametrize(
    ("program", "ranks"), [(program, 3 if program == "two_trainings" else 2) for program in FOUND]
)
def test_models_that_no_line_names_are_found(
    server: RankServer, tmp_path: Path, program: str, ranks: int
) -> None:
    """The program names no model; its calls are divided all the same."""
    text = (Path(__file__).parent / "loops" / f"{program}.py").read_text(encoding="utf-8")
    assert "ddp.parallelize(" in text
    named_nowhere = SCRIPT + "ddp.parallelize_trained()\n" + text.replace("ddp.parallelize(", "id(")
    one, several = server.compare(tmp_path, named_nowhere, ranks)
    assert difference(one, several) < TOLERANCE, several.text
    assert "saves no time" not in several.ranks[0].err, several.text


def test_what_trains_without_a_model_is_said(server: RankServer, tmp_path: Path) -> None:
    text = """
    ddp.parallelize_trained()
    w = torch.zeros(4, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    for x in torch.randn(6, 4):
        optimizer.zero_grad()
        loss = (w - x).pow(2).sum()
        loss.backward()
        optimizer.step()
        log(loss)
    ddp.check_replicas()
    note(figures=figures, parameters=[w.detach()])
    """
    one, several = server.compare(tmp_path, SCRIPT + textwrap.dedent(text), 2)
    assert difference(one, several) < TOLERANCE, several.text
    assert several.ranks[0].err.count("an optimizer trains parameters of no model that was called") == 1
