"""What people add by hand for several GPUs is taken over."""

from __future__ import annotations

import pytest

from nb2ddp.rules.dialects import rule
from tests.support.helpers import apply, check_rewritten, check_untouched, converted

TRAINS = "from trl import SFTTrainer\ntrainer = SFTTrainer(model)\ntrainer.train()\n"


@pytest.mark.parametrize(
    "source",
    [
        "from unsloth import FastLanguageModel\n",
        "import torch.distributed as dist\nx = dist.get_rank()\n",
        "model = wrap(model)\n",
        'from trl import SFTConfig\na = SFTConfig("o", save_strategy="steps" if long else "no")\n',
        "x = thing.module\n",
    ],
)
def test_what_is_no_dialect_stays(source: str) -> None:
    check_untouched(rule, source)


@pytest.mark.parametrize("name", ["UNSLOTH_ENABLE_MULTIGPU", "UNSLOTH_MULTIGPU"])
def test_a_variable_that_does_nothing_goes(name: str) -> None:
    check_rewritten(rule, f'import os\nos.environ["{name}"] = "1"\nx = 1\n', "import os\nx = 1\n")


def test_switches_of_forks_go_and_the_call_keeps_its_layout() -> None:
    check_rewritten(
        rule,
        """\
        from unsloth import FastLanguageModel
        model, tok = FastLanguageModel.from_pretrained(
            "m",
            enable_multi_gpu = True,  # both
            load_in_4bit = True,  # small
        )
        """,
        """\
        from unsloth import FastLanguageModel
        model, tok = FastLanguageModel.from_pretrained(
            "m",
            load_in_4bit = True,  # small
        )
        """,
    )


def test_the_forks_names_become_unsloths() -> None:
    check_rewritten(
        rule,
        "from pantheraml import FastLanguageModel, PantheraMLDistributedTrainer, MultiGPUConfig\n"
        "config = MultiGPUConfig(backend='nccl')\n"
        "trainer = PantheraMLDistributedTrainer(model, multi_gpu_config=config)\n",
        "from unsloth import FastLanguageModel, UnslothTrainer as PantheraMLDistributedTrainer\n"
        "trainer = PantheraMLDistributedTrainer(model)\n",
    )


def test_what_only_the_fork_has_is_declined() -> None:
    (declined,) = apply(rule, "from pantheraml import distributed_context\n").declined
    assert "pantheraml.distributed_context" in declined.why


def test_a_group_joined_too_early_and_left_by_hand_goes() -> None:
    check_rewritten(
        rule,
        """\
        import torch.distributed as dist
        def setup():
            dist.init_process_group(backend="nccl")
            return 0
        rank = setup()
        if rank is not None:
            dist.destroy_process_group()
        """,
        """\
        import torch.distributed as dist
        def setup():
            return 0
        rank = setup()
        if rank is not None:
            pass
        """,
    )


def test_a_wrap_by_hand_goes_with_its_unwrapping() -> None:
    check_rewritten(
        rule,
        """\
        from torch.nn.parallel import DistributedDataParallel as DDP
        if local_rank is not None:
            model = DDP(model, device_ids=[local_rank])
            print("wrapped")
        inner = model.module
        other = DDP(model)
        """,
        """\
        from torch.nn.parallel import DistributedDataParallel as DDP
        if local_rank is not None:
            print("wrapped")
        inner = model
        other = model
        """,
    )


@pytest.mark.parametrize(
    ("value", "after"),
    [
        ('"steps" if is_main_process else "no"', '"steps"'),
        ('"steps" if rank == 0 else "no"', '"steps"'),
        ('"no" if rank != 0 else "steps"', '"steps"'),
        ('"no" if not is_main_process else "steps"', '"steps"'),
        ('"steps" if local_rank in (-1, 0) else "no"', '"steps"'),
    ],
)
def test_every_rank_gets_rank_0s_arguments(value: str, after: str) -> None:
    head = "from trl import SFTConfig\n"
    check_rewritten(
        rule,
        f'{head}a = SFTConfig("o", save_strategy={value})\n',
        f'{head}a = SFTConfig("o", save_strategy={after})\n',
    )


def test_a_barrier_before_training_waits_without_a_group_and_goes_after_it() -> None:
    head = "import torch.distributed as dist\n"
    check_rewritten(
        rule,
        f"{head}dist.barrier()\n{TRAINS}dist.barrier()\n",
        f"{head}ddp.from_all_ranks(None)\n{TRAINS}",
    )


def test_a_loop_with_a_sampler_of_its_own_is_declined() -> None:
    source = "from torch.utils.data.distributed import DistributedSampler\ns = DistributedSampler(d)\n"
    (declined,) = apply(rule, source).declined
    assert "torchrun" in declined.why


def test_a_script_of_ours_is_not_converted_again() -> None:
    load = "from unsloth import FastLanguageModel\nmodel, tok = FastLanguageModel.from_pretrained('m')\n"
    args = "from trl import SFTConfig, SFTTrainer\ntrainer = SFTTrainer(model, args=SFTConfig('o'))\n"
    script = converted(load, args, "trainer.train()").files["train_ddp.py"]
    again = converted(script)
    assert again.status == "declined"
    assert any("made this already" in declined.why for declined in again.declined)
