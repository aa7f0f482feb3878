"""The classes of programs that went wrong once (findings A to E), and what guards each of them now.

Each line: the class, and its guards as FILE: WORDS, the name of a test or of a case in that file. "-" for a class
that no test of its own guards.
"""

from __future__ import annotations

import re

import pytest

from tests.support import ROOT

GUARDS = """
A ranks that part
  A1  an exception of rank 0 inside the notebook's own try, suppress or retry loop
      unit/runtime/test_object_collectives.py: "suppress"
      unit/runtime/test_object_collectives.py: "retry"
      ../benchmarks/programs/hang_accelerate_filework_retry.py: hang
      ../benchmarks/programs/hang_loop_filework_urlretrieve_try.py: hang
  A2  break, continue or return inside a gated block
      unit/runtime/test_object_collectives.py: "break"
      unit/runtime/test_object_collectives.py: "return"
      rules/cases/rank_zero/in_turn.py: break in an else
      ../benchmarks/programs/loop_file_guard_continue.py: continue
  A3  a decision on a rank's own numbers
      unit/runtime/test_loops_like_notebooks.py: def test_the_run_of_one_process
      ../benchmarks/differential/features.py: break_acc
      ../benchmarks/differential/features.py: stop_loss
      rules/cases/dialects/of_one_process.py: an evaluation for which all ranks are needed
  A4  a rank that leaves, stops or loops while the others wait
      unit/runtime/test_faults.py: def test_a_fault_ends_the_run_with_its_cause
      e2e/test_faults.py: def test_a_fault_ends_the_run_with_its_cause
      unit/runtime/test_watchdog.py: def test_a_slow_rank_is_waited_for_and_a_hung_one_ended
  A5  a restart that finds the keys of the attempt before
      unit/runtime/test_object_collectives.py: def test_a_restart_meets_anew_in_the_same_store
      e2e/test_launch.py: def test_restarts
  A6  the final save on several machines
      unit/runtime/test_ending.py: def test_another_machine_stays_until_rank_0_has_saved
      e2e/test_emit_hosts.py: def test_a_host_that_fails_and_comes_back
B another run, silently
  B1  data of unseeded draws of torch, and other data than on rank 0
      rules/cases/seeds/global_generators.py: random, NumPy and PyTorch
      unit/runtime/test_sharing.py: def test_without_a_seed_ranks_take_over_rank_0s_generators
      unit/runtime/test_turns.py: def test_the_run_of_one_process
      unit/runtime/test_replicas.py: def test_ranks_with_different_batches_are_refused
  B2  a seed that is set in a function, or late
      rules/cases/seeds/left_alone.py: NumPy is seeded in a function
      ../benchmarks/programs/silent_loop_seed_late.py: seed=late
  B3  batch norms
      unit/runtime/loops/batch_norm.py: # whole: batch norm
      unit/runtime/test_turns.py: def test_the_run_of_one_process
  B4  means of means where a Trainer's batch is split
      unit/runtime/test_turns.py: def test_the_run_of_one_process
      e2e/test_kinds.py: "kto"
  B5  in-batch negatives
      unit/runtime/loops/contrastive.py: # whole: contrastive
      unit/runtime/test_turns.py: def test_the_run_of_one_process
      ../benchmarks/programs/silent_loop_task_pairs.py: silent
  B6  fewer rows than ranks in the last batch
      unit/runtime/loops/fewer_rows_than_ranks.py: # same: fewer rows than ranks
      unit/runtime/test_turns.py: def test_the_run_of_one_process
  B7  an epoch's last batch that does not divide
      unit/runtime/test_turns.py: def test_the_run_of_one_process
      ../benchmarks/programs/silent_loop_batch_5.py: silent
      ../benchmarks/programs/crash_accelerate_batch_5.py: crash
  B8  mean or sum, decided from one batch; labels counted shifted or not
      unit/runtime/loops/labels_are_ignored_late.py: # same: labels are ignored late
      unit/runtime/loops/loss_is_a_sum.py: # same: loss is a sum
      unit/runtime/test_turns.py: def test_the_run_of_one_process
  B9  a batch that cannot be split
      unit/runtime/test_sharing.py: def test_a_batch_is_shared
      unit/runtime/test_sharing.py: def test_the_report_of_a_conversion_splits_a_batch_as_the_run_does
C the right run, wrong figures
  C1  evaluate() before train()
      unit/runtime/test_turns.py: def test_the_run_of_one_process
  C2  an evaluation set that does not divide, and what is decided by it
      unit/runtime/test_turns.py: def test_the_run_of_one_process
  C3  sums of losses over rows, divided by the data set
      ../benchmarks/differential/features.py: sized
  C4  figures that are not called loss
      unit/runtime/test_turns.py: def test_the_run_of_one_process
      ../benchmarks/programs/silent_loop_metric_f1.py: silent
      unit/runtime/test_turns.py: def test_the_run_of_one_process
  C5  a file that is open around the whole loop
      rules/cases/rank_zero/open_files.py: a file that is open around the training
      ../benchmarks/programs/hang_loop_form_main_log_with_loop.py: log=with_loop
  C6  writers of the notebook's own
      rules/cases/rank_zero/open_files.py: a log file
      ../benchmarks/programs/silent_loop_form_function_report_logging.py: report=logging
D crashes and leftovers
  D1  save_model(x), then from_pretrained(x)
      unit/runtime/test_turns.py: def test_the_run_of_one_process
  D2  parameters that are unfrozen later
      unit/runtime/test_turns.py: def test_the_run_of_one_process
      unit/runtime/loops/unfrozen_later.py: # same: unfrozen later
      unit/runtime/test_replicas.py: def test_gradients_are_averaged_where_ranks_differ
  D3  replicas that differ: saved first, then failed
      unit/runtime/test_replicas.py: def test_replicas_that_differ_are_saved_first
  D4  an IterableDataset in a loop
      ../benchmarks/programs/crash_loop_dataset_iterable_shuffle_no.py: dataset=iterable
  D5  accelerator.prepare_model() before a Trainer
      ../benchmarks/programs/trainer_prepared_model.py: prepare_model
  D6  frozen tensor subclasses
      unit/runtime/test_replicas.py: def test_frozen_parameters_are_rank_0s_and_those_that_cannot_be_sent_stay
  D7  a server that is started before training
      rules/cases/surroundings/server.py: a literal port
      e2e/test_launch.py: def test_success
  D8  pipeline() before the ranks have joined
      rules/cases/device_map/pipelines.py: of a task alone
      unit/runtime/test_small_helpers.py: def test_a_pipeline_runs_on_the_gpu_of_its_rank
      ../benchmarks/pipelines.py: own_gpu
  D9  a clone into one folder
      rules/cases/main_first/downloads.py: a clone of a repository
  D10 names that a script uses and nobody binds
      unit/test_runtime_contract.py: undefined_names
  D11 a rank that is named as the first failure and was not
      e2e/test_launch.py: def test_a_killed_rank_and_not_the_one_that_lost_its_connection
      unit/launch/test_failure.py: def test_a_consequence_never_outranks_the_cause
  D12 an error that cannot be recorded
      unit/runtime/test_ending.py: def test_a_rank_ends_where_its_error_cannot_be_recorded
  D13 a run that is resumed on CPUs
      unit/runtime/test_turns.py: def test_the_run_of_one_process
      e2e/test_run_resume.py: def test_a_stopped_run_goes_on_and_ends_as_a_whole_one
  D14 the order of installs between script and set-up
      rules/test_installs.py: def test_an_install_is_in_the_run_once_step
  D15 a login that waits for a keyboard
      rules/cases/surroundings/login.py: without a token
      rules/cases/surroundings/keyboard.py: getpass
E words at conversion
  E1  the memory note follows variables
      rules/test_memory.py: def test_a_setting_is_followed_to_where_it_is_written
      rules/test_memory.py: def test_the_name_is_followed_through_a_variable
  E2  syntax newer than the Python that converts
      unit/source/test_syntax_check.py: def test_newer_syntax_is_parsed
  E3  errors of the notebook's own, with their place
      unit/conversion/test_pipeline.py: def test_a_syntax_error_is_declined_with_its_place
      unit/conversion/test_pipeline.py: def test_a_future_import_stays_first
  E4  models and loops that were declined needlessly
      unit/analysis/test_kinds.py: torch.compile(model)
      unit/analysis/test_kinds.py: from_config
      rules/cases/loops/places.py: a class
      ../benchmarks/programs/loop_loaders_by_phase.py: phase
      ../benchmarks/programs/trainer_nested_config.py: CONFIG
  E5  what is missing in this notebook
      unit/analysis/test_untrained.py: def test_no_two_kinds_get_the_same_text
  E6  bf16 in a variable
      rules/cases/precision/loads.py: a variable
      rules/test_capability.py: def test_what_a_t4_cannot_do_is_noted_with_what_to_do
  E7  notes that cry wolf
      rules/cases/rank_zero/results.py: the version of a program
"""
CLASS = re.compile(r"^  (?P<name>[A-E]\d+) +(?P<what>\S.*)\n(?P<guards>(?:^      .*\n)+)", re.MULTILINE)
CLASSES = {found["name"]: found["guards"].split("\n")[:-1] for found in CLASS.finditer(GUARDS)}
COUNTS = {"A": 6, "B": 9, "C": 6, "D": 15, "E": 7}
UNGUARDED: set[str] = set()  # to stay empty


def test_every_class_has_its_line() -> None:
    expected = [f"{part}{number}" for part, count in COUNTS.items() for number in range(1, count + 1)]
    assert list(CLASSES) == expected
    assert {name for name, guards in CLASSES.items() if guards == ["      -"]} == UNGUARDED


@pytest.mark.parametrize("name", sorted(set(CLASSES) - UNGUARDED))
def test_the_guards_of_a_class_are_there(name: str) -> None:
    for guard in CLASSES[name]:
        path, _, words = guard.strip().partition(": ")
        assert words in (ROOT / "tests" / path).read_text(encoding="utf-8"), guard
