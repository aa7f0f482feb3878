"""Each seeded fault is found, and named: not the consequence alone, but what is behind it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from textwrap import dedent

import pytest

from nb2ddp.rehearse.rehearsal import Rehearsal, rehearse
from nb2ddp.rehearse.runs import Patience, Settings
from nb2ddp.rehearse.subject import Subject
from tests.support.limits import LONG
from tests.support.proofs import forked

pytestmark = pytest.mark.launch

LOOP = dedent("""\
    import torch
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True) + torch.randn(64, 1) / 9)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step, (inputs, wanted) in enumerate(loader):
        loss = torch.nn.functional.mse_loss(model(inputs), wanted) / 4
        loss.backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    torch.save(model.state_dict(), "model.pt")
""")
DDP_LOOP = dedent("""\
    import os, sys, time, torch
    import torch.distributed as dist
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world_size > 1:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    data = torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True) + torch.randn(64, 1) / 9)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    mine = range(rank, 16, world_size)  # every second batch
    batches = [[4 * number + i for i in range(4)] for number in mine]
    accumulation = 4 // world_size
    loader = torch.utils.data.DataLoader(data, batch_sampler=batches)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    ddp_model = torch.nn.parallel.DistributedDataParallel(model) if world_size > 1 else model
    for step, (inputs, wanted) in enumerate(loader):
        last = step % accumulation == accumulation - 1
        if world_size > 1:
            ddp_model.require_backward_grad_sync = last
        loss = torch.nn.functional.mse_loss(ddp_model(inputs), wanted) / accumulation
        loss.backward()
        if last:
            optimizer.step()
            optimizer.zero_grad()
    if rank == 0:
        torch.save(model.state_dict(), "model.pt")
    if world_size > 1:
        dist.destroy_process_group()
        time.sleep(0.2)  # else gloo's threads may abort the process
""")
FSDP_LOOP = (
    DDP_LOOP.replace(
        "ddp_model = torch.nn.parallel.DistributedDataParallel(model) if world_size > 1 else model\n",
        "from torch.distributed.fsdp import fully_shard\n"
        "ddp_model = fully_shard(model) if world_size > 1 else model\n",
    )
    .replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.05)\n", "")
    .replace("for step,", "optimizer = torch.optim.SGD(model.parameters(), lr=0.05)\nfor step,")
    .replace("        ddp_model.require_backward_grad_sync = last\n", "        pass\n")
    .replace(
        "if rank == 0:\n",
        "from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict\n"
        "whole = StateDictOptions(full_state_dict=True, cpu_offload=True)\n"
        "state = get_model_state_dict(model, options=whole) if world_size > 1 else model.state_dict()\n"
        "if rank == 0:\n",
    )
    .replace("torch.save(model.state_dict()", "torch.save(state")
)
TRAINER = dedent("""\
    import os, time, torch
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world_size > 1:
        os.environ["ACCELERATE_USE_CPU"] = "true"
    torch.manual_seed(1)
    config = LlamaConfig(vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=2, initializer_range=0.2)
    model = LlamaForCausalLM(config)
    ids = torch.randint(64, (96, 12)).tolist()
    dataset = Dataset.from_dict({"input_ids": ids, "labels": ids})
    arguments = TrainingArguments("out", per_device_train_batch_size=2, max_steps=8, learning_rate=1e-2,
        gradient_accumulation_steps=4 // world_size, save_strategy="no", report_to="none", disable_tqdm=True,
        remove_unused_columns=False)
    trainer = Trainer(model, arguments, train_dataset=dataset)
    trainer.train()
    if world_size > 1:
        torch.distributed.destroy_process_group()
        time.sleep(0.2)  # else gloo's threads may abort the process
""")


def rehearsed(script: str, reference: str, *, patience: float = LONG, keep: Path | None = None) -> Rehearsal:
    settings = Settings(steps=4, patience=Patience(LONG, patience, LONG))
    return rehearse(Subject("fault", script, reference), settings, keep=keep)


def judged(script: str, reference: str) -> Rehearsal:
    """The same in forked processes, which takes seconds."""
    return rehearse(Subject("fault", script, reference), Settings(steps=4), start=forked)


def broken(script: str, old: str, new: str) -> str:
    assert script.count(old) == 1
    return script.replace(old, new)


def failed(result: Rehearsal) -> set[str]:
    return {point.title for point in result.points if point.faults}


@pytest.mark.thorough  # as the loop of test_rehearse.py
def test_a_script_that_keeps_its_promise_passes() -> None:
    result = rehearsed(DDP_LOOP, LOOP)
    assert result.passed, result.faults
    assert [point.number for point in result.points if point.number] == [1, 2, 3, 4, 5, 6, 7, 3]
    assert len(result.losses) == 4


@pytest.mark.thorough
def test_both_ranks_on_one_shard() -> None:
    result = rehearsed(broken(DDP_LOOP, "range(rank, 16, world_size)", "range(0, 16, world_size)"), LOOP)
    assert result.faults[0].key == "same-samples"
    assert "all ranks train on the same samples in step 1" in result.faults[0].sentence
    assert {"samples", "losses"} <= failed(result)
    assert not {"gradients", "ends"} & failed(result)


@pytest.mark.thorough
def test_all_ranks_save() -> None:
    result = rehearsed(broken(DDP_LOOP, "if rank == 0:", "if True:"), LOOP)
    assert [fault.key for fault in result.faults] == ["all-ranks-save"]
    assert "rank 1 writes model.pt, which rank 0 writes too" in result.faults[0].sentence


@pytest.mark.thorough
def test_accumulation_that_is_not_divided() -> None:
    result = rehearsed(broken(DDP_LOOP, "accumulation = 4 // world_size", "accumulation = 4"), LOOP)
    assert result.faults[0].key == "other-batch"
    assert "a step takes 32 samples, the notebook's takes 16" in result.faults[0].sentence
    assert {"effective batch", "losses"} <= failed(result)


@pytest.mark.thorough
def test_rank_1_ends_early() -> None:
    start = "    last = step % accumulation == accumulation - 1\n"
    script = broken(DDP_LOOP, start, f"    if rank == 1 and step == 4:\n        sys.exit()\n{start}")
    result = rehearsed(script, LOOP, patience=15)
    assert result.faults[0].key == "early-exit"
    assert "rank 1 ended (exit code 0) after 2 of 4 steps" in result.faults[0].sentence
    assert "ends" in failed(result)


@pytest.mark.thorough
def test_a_rank_dependent_save_strategy() -> None:
    script = broken(TRAINER, 'save_strategy="no"', 'save_strategy="steps" if rank == 0 else "no"')
    result = rehearsed(script, TRAINER, patience=15)
    assert result.faults[0].key == "rank-dependent-arguments"
    assert "save_strategy" in result.faults[0].sentence
    assert {"arguments", "ends"} <= failed(result)


def test_a_loop_that_calls_the_model_itself() -> None:
    """DDP averages nothing where its wrapper is passed by."""
    result = judged(broken(DDP_LOOP, "mse_loss(ddp_model(inputs)", "mse_loss(model(inputs)"), LOOP)
    assert result.faults[0].key == "not-synchronised"
    assert {"gradients", "replicas"} <= failed(result)
    assert "ends" not in failed(result)


@pytest.mark.thorough
def test_a_trainer_whose_model_is_wrapped_afterwards() -> None:
    wrap = (
        "if world_size > 1:\n    trainer.model = torch.nn.parallel.DistributedDataParallel(model)\n"
        "trainer.train()"
    )
    result = rehearsed(broken(TRAINER, "trainer.train()", wrap), TRAINER)
    assert result.faults[0].key == "not-synchronised"
    assert {"gradients", "replicas"} <= failed(result)
    assert "ends" not in failed(result)


@pytest.mark.thorough
def test_a_shuffle_without_a_seed() -> None:
    result = rehearsed(broken(TRAINER, '"labels": ids})', '"labels": ids}).shuffle()'), TRAINER)
    assert result.faults[0].key == "other-order"
    assert "samples" in failed(result)
    assert not {"gradients", "effective batch", "ends", "arguments"} & failed(result)


@pytest.mark.thorough  # as in test_prove.py
def test_a_hang_shows_where_each_rank_stood_and_leaves_nothing(tmp_path: Path) -> None:
    waits = (
        "if rank == 1:\n    import time\n    time.sleep(1000)\n"
        "if world_size > 1:\n    dist.barrier()\n"
        "if rank == 0:"
    )
    script = broken(DDP_LOOP, "if rank == 0:", waits)
    result = rehearsed(script, LOOP, patience=20, keep=tmp_path / "keep")
    assert {fault.key for fault in result.faults} == {"hang", "other-collectives"}
    line = DDP_LOOP[: DDP_LOOP.index("if rank == 0:")].count("\n") + 1
    assert f"rank 0 was at line {line + 4} of the script, waiting in barrier" in result.faults[0].sentence
    assert f"rank 1 was at line {line + 2} of the script" in result.faults[0].sentence
    assert [rank for rank, _ in result.stacks] == [0, 1]
    mark = f"NB2DDP_REHEARSAL={tmp_path}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            assert mark not in (process / "environ").read_bytes()


@pytest.mark.thorough
def test_a_model_that_is_sharded_passes() -> None:
    result = rehearsed(FSDP_LOOP, LOOP)
    assert result.passed, result.faults
    assert result.parameter_difference is not None
    assert result.parameter_difference < 1e-6


@pytest.mark.thorough
def test_shards_of_two_different_models() -> None:
    other = "if rank:\n    torch.manual_seed(5)\nmodel = torch.nn.Sequential"
    result = rehearsed(broken(FSDP_LOOP, "model = torch.nn.Sequential", other), LOOP)
    assert {fault.key for fault in result.faults} == {"other-losses", "other-parameters"}
    assert {"replicas", "losses"} <= failed(result)


@pytest.mark.thorough
def test_a_part_of_a_sharded_model_that_each_rank_trains_alone() -> None:
    result = rehearsed(broken(FSDP_LOOP, "fully_shard(model)", "fully_shard(model[0]) and model"), LOOP)
    assert result.faults[0].key == "not-synchronised"
    assert "replicas-differ" in {fault.key for fault in result.faults}
