"""A model that is sharded over the ranks is trained, compared and saved as in one process; what the start refuses."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nb2ddp import libraries
from nb2ddp.runtime import unsloth_sharding
from tests.support.ranks import Ended
from tests.unit.runtime.conftest import RANK_COUNTS

Run = Callable[..., Ended]
RANKS = "import ddp_support as ddp\nrank, local_rank, world_size = ddp.init_ranks(seed=0)\n"

# What Unsloth makes of a Trainer: the model is sharded before it, Accelerate leaves it alone, every rank saves.
TRAINS = """
import contextlib
import torch
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

class Sharding(Trainer):
    def save_model(self, output_dir=None, _internal_call=False):
        state = get_model_state_dict(self.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
        if self.args.should_save:
            self._save(output_dir, state_dict=state)

def trainer(shards=True):
    torch.manual_seed(0)
    model = BertForSequenceClassification(BertConfig(vocab_size=20, hidden_size=8, intermediate_size=16,
        num_hidden_layers=1, num_attention_heads=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    ids = torch.randint(0, 20, (12 * 3, 6))
    data = [{"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row.sum() % 2} for row in ids]
    batch, steps = ddp.share_batch(2, 6) if world_size > 1 else (2, 6)
    arguments = TrainingArguments("out", per_device_train_batch_size=batch, gradient_accumulation_steps=steps,
        max_steps=3, learning_rate=0.1, optim="sgd", lr_scheduler_type="constant", max_grad_norm=0, report_to=[],
        use_cpu=True, disable_tqdm=True, save_strategy="no", logging_steps=1)
    ddp.init_process_group()
    if world_size > 1 and shards:
        fully_shard(model)
    made = Sharding(model, arguments, train_dataset=data)
    if world_size > 1:
        made.accelerator.prepare_model = lambda model, **_: model
        made.accelerator.no_sync = lambda model: contextlib.nullcontext()  # sum at once
    return made
"""
SAVES = f"""
{TRAINS}
trained = trainer()
assert ddp.use_shards(trained) is trained.model
trained.train()
ddp.check_replicas(trained.model)
ddp.save_shards(trained, "deep/model")
ddp.finish()
note(losses=[row["loss"] for row in trained.state.log_history if "loss" in row])
"""


@pytest.mark.parametrize("ranks", RANK_COUNTS)
def test_it_trains_and_saves_what_one_process_does(run: Run, ranks: int) -> None:
    from safetensors.torch import load_file

    single, sharded = run(SAVES, 0, start=RANKS), run(SAVES, ranks, start=RANKS)
    assert sharded.codes == [0] * ranks, sharded.text
    assert sharded.notes[0]["losses"] == pytest.approx(single.notes[0]["losses"], rel=1e-5)
    assert f"nb2ddp: {ranks} ranks hold one model in shards" in sharded.ranks[0].out
    files = [sorted(path.name for path in (ended.folder / "deep").rglob("*")) for ended in (single, sharded)]
    assert files[0] == files[1] == ["config.json", "model", "model.safetensors"]
    expected, saved = (
        load_file(e.folder / "deep" / "model" / "model.safetensors") for e in (single, sharded)
    )
    assert saved.keys() == expected.keys()
    for name, value in expected.items():
        assert (saved[name] - value).abs().max() < 1e-6, name


def test_of_two_machines_with_a_disk_each_the_first_has_the_model(run: Run) -> None:
    ended = run(SAVES, start=RANKS, machines=2, environment={"NB2DDP_SHARED_FS": "0"})
    assert ended.codes == [0, 0], ended.text
    assert {path.name for path in (ended.folder / "deep").iterdir()} == {"model"}


def test_a_model_that_was_left_whole_ends_the_run(run: Run) -> None:
    ended = run(f"{TRAINS}\nddp.use_shards(trainer(shards=False))", start=RANKS)
    assert 0 not in ended.codes
    assert "RuntimeError: Unsloth has not sharded the model of this Sharding" in ended.text


def test_a_part_that_is_not_sharded_is_compared(run: Run) -> None:
    script = """
        import torch
        from torch.distributed.fsdp import fully_shard
        ddp.init_process_group()
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        fully_shard(model[0])
        with torch.no_grad():
            model[1].bias += rank
        ddp.check_replicas(model)
    """
    ended = run(script)
    assert "the ranks have trained different models: 1.bias is not the same on all of them" in ended.text
    assert 1 in ended.codes


def test_the_runtime_asks_for_the_version_that_the_package_knows() -> None:
    assert unsloth_sharding._FSDP_SINCE == libraries.UNSLOTH_SHARDS


def test_what_an_evaluation_left_gathered_can_be_used_again(run: Run) -> None:
    script = """
        import torch
        from torch.distributed.fsdp import fully_shard
        ddp.init_process_group()
        model = torch.nn.Linear(4, 4)
        fully_shard(model)
        with torch.no_grad():
            before = model(torch.ones(1, 4))  # the root stays gathered
        ddp.check_replicas(model)
        model.unshard()
        model.reshard()
        note(same=torch.equal(before, model(torch.ones(1, 4))))
    """
    ended = run(script)
    assert ended.codes == [0, 0], ended.text
    assert all(notes["same"] for notes in ended.notes)


# ---- the environment, before anything is downloaded ---------------------------------------------------


@pytest.fixture
def unsloth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let another version of Unsloth be the installed one; "" for none."""
    for name in ("UNSLOTH_FSDP2", "UNSLOTH_TP_SIZE", "UNSLOTH_FSDP2_SHARDED_LOAD"):
        monkeypatch.setenv(name, "")

    def install(version: str) -> None:
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        if version:
            info = tmp_path / f"unsloth-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: unsloth\nVersion: {version}\n")

    return install


def ask(strategy: str, **options: Any) -> str:
    """Return how the start of a script ends: "" where it goes on."""
    try:
        unsloth_sharding._ask_unsloth_for(strategy, options.get("loads_share", False))
    except SystemExit as ended:
        return str(ended)
    return ""


@pytest.mark.parametrize(
    ("version", "found"), [("2026.8.20", "2026.8.20"), ("2026.10.7", "2026.10.7"), ("", "none")]
)
def test_an_unsloth_that_cannot_shard_ends_the_script(
    unsloth: Callable[[str], None], version: str, found: str
) -> None:
    unsloth(version)
    said = ask("fsdp")
    assert f"Unsloth 2026.10.8 or newer; installed is {found}." in said
    assert said.endswith('Run: pip install -U "unsloth>=2026.10.8" unsloth_zoo')
    assert ask("ddp") == ""


@pytest.mark.parametrize("version", ["2026.10.8", "2026.10.9.post1", "2026.11.1", "2027.1.1"])
def test_one_that_can_is_asked_by_its_variables(
    unsloth: Callable[[str], None], version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import os

    unsloth(version)
    assert ask("ddp") == ask("fsdp") == ""
    assert os.environ["UNSLOTH_FSDP2"] == "1"
    monkeypatch.delenv("UNSLOTH_FSDP2_SHARDED_LOAD")
    assert ask("fsdp", loads_share=True) == ""
    assert os.environ["UNSLOTH_FSDP2_SHARDED_LOAD"] == "1"


@pytest.mark.parametrize(
    ("strategy", "name", "value", "held"),
    [
        ("ddp", "UNSLOTH_FSDP2", "1", "a copy"),
        ("ddp", "UNSLOTH_FSDP2", "native", "a copy"),
        ("ddp", "UNSLOTH_TP_SIZE", "2", "a copy"),
        ("fsdp", "UNSLOTH_FSDP2", "0", "a share"),
        ("fsdp", "UNSLOTH_TP_SIZE", "2", "a share"),
    ],
)
def test_a_variable_for_another_strategy_ends_the_script(
    unsloth: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    strategy: str,
    name: str,
    value: str,
    held: str,
) -> None:
    unsloth("2026.10.9")
    monkeypatch.setenv(name, value)
    assert name in ask(strategy)
    assert f"is set: this script gives each GPU {held} of the model. Unset it and start again." in ask(
        strategy
    )


@pytest.mark.parametrize("name", ["UNSLOTH_FSDP2_BACKEND", "ACCELERATE_USE_FSDP"])
def test_accelerates_sharding_ends_the_script(
    unsloth: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    unsloth("2026.10.9")
    monkeypatch.setenv(name, "accelerate" if name.endswith("BACKEND") else "true")
    assert (
        ask("fsdp") == f"{name} is set: this script lets Unsloth shard the model. Unset it and start again."
    )
    assert ask("ddp") == ""
