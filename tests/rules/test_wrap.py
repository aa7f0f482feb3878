"""A Trainer trains through one wrapper of ours, made when training starts; `model` stays as it is."""

from __future__ import annotations

import pytest

from nb2ddp import libraries
from nb2ddp.options import Options
from nb2ddp.rewriting.findings import EvenBatches
from nb2ddp.rules.wrap import rule
from tests.support.helpers import apply, check_rewritten, check_untouched

HEAD = "from trl import DPOTrainer, SFTConfig, SFTTrainer\nt = SFTTrainer(llm)\n"
BY_TRAINER = Options(wrap="trainer")


def wrapped(train: str, name: str = "t", indent: str = "") -> str:
    return (
        f"{indent}ddp_model = ddp.wrap_trainer({name})  # nb2ddp: `model` itself stays as it is\n"
        f"{indent}{train}\n"
        f"{indent}ddp.check_replicas(ddp_model)\n"
    )


LEFT_ALONE = {
    "a model put into training mode": "llm.train()",
    "a Trainer that never trains": HEAD,
    "dead training": HEAD + "if False:\n    t.train()",
    "a class of the notebook": "class Trainer:\n    pass\nt = Trainer()\nt.train()",
}

PLACES = {
    "in a with block": ("with profiler:\n", "    ", ""),
    "in a function": ("def go():\n", "  ", "go()\n"),
    "in a try": ("try:\n", "    ", "except KeyboardInterrupt:\n    pass\n"),
    "in a loop over seeds": ("for seed in seeds:\n", "    ", ""),
}

TRAINERS = {
    "a subclass": "from transformers import Trainer\nclass Mine(Trainer):\n    pass\nt = Mine(llm)\n",
    "a star import": "from trl import *\nt = SFTTrainer(llm)\n",
    "through the module": "import trl as rl\nt = rl.GRPOTrainer(llm)\n",
    "Unsloth's": "from unsloth import UnslothTrainer\nt = UnslothTrainer(llm)\n",
    "responses only": (
        HEAD + "from unsloth.chat_templates import train_on_responses_only as only\nt = only(t, a = 1)\n"
    ),
    "made by a function": (
        "from trl import SFTTrainer\ndef make():\n    return SFTTrainer(llm)\nt = make()\n"
    ),
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_what_trains_nothing_is_left_alone(source: str) -> None:
    check_untouched(rule, source)


def test_the_wrapper_is_made_between_the_comment_and_the_training() -> None:
    check_rewritten(
        rule,
        HEAD + "# go\nstats = t.train()  # slow\nx = 1\n",
        HEAD + "# go\n" + wrapped("stats = t.train()  # slow") + "x = 1\n",
    )


@pytest.mark.parametrize("header", TRAINERS.values(), ids=TRAINERS.keys())
def test_a_trainer_is_known_by_what_it_is_not_by_its_name(header: str) -> None:
    check_rewritten(rule, header + "t.train()\n", header + wrapped("t.train()"))


@pytest.mark.parametrize(("around", "indent", "end"), PLACES.values(), ids=PLACES.keys())
def test_training_inside_a_block_is_wrapped_there(around: str, indent: str, end: str) -> None:
    check_rewritten(
        rule,
        f"{HEAD}{around}{indent}t.train()\n{end}",
        f"{HEAD}{around}{wrapped('t.train()', indent=indent)}{end}",
    )


def test_two_trainers_are_wrapped_one_after_the_other() -> None:
    second = "d = DPOTrainer(llm)\n"
    check_rewritten(
        rule,
        HEAD + "t.train()\n" + second + "d.train()\n",
        HEAD + wrapped("t.train()") + second + wrapped("d.train()", "d"),
    )


@pytest.mark.parametrize(
    "freed", ["del llm\n", "del t, llm\n", "del (t)\n", "x = 1\nif x:\n    del llm, x\n"]
)
def test_a_model_that_is_deleted_is_not_kept_by_its_wrapper(freed: str) -> None:
    made = 'from transformers import AutoModel\nllm = AutoModel.from_pretrained("m")\n'
    gone = "del ddp_model  # nb2ddp: it holds the model too, which is to be freed\n"
    check_rewritten(
        rule, made + HEAD + "t.train()\n" + freed, made + HEAD + wrapped("t.train()") + gone + freed
    )


@pytest.mark.parametrize("freed", ["del other\n", "del t.x\n", "def f(t):\n    del t\n"])
def test_what_else_is_deleted_does_not_matter(freed: str) -> None:
    check_rewritten(rule, HEAD + "t.train()\n" + freed, HEAD + wrapped("t.train()") + freed)


def test_what_follows_on_the_line_comes_after_the_comparison() -> None:
    check_rewritten(
        rule,
        HEAD + 't.train(); llm.save_pretrained("a")\n',
        HEAD + wrapped("t.train()") + 'llm.save_pretrained("a")\n',
    )


@pytest.mark.parametrize("model", ["unsloth.FastVisionModel", "transformers.AutoModelForImageTextToText"])
def test_a_vision_model_may_leave_parameters_unused(model: str) -> None:
    package, _, name = model.partition(".")
    vision = f'from {package} import {name}\nm = {name}.from_pretrained("m")\n'
    told = HEAD.replace("(llm)", '(llm, args=SFTConfig("o"))').replace(
        "SFTTrainer\n", "SFTConfig, SFTTrainer\n", 1
    )
    result = apply(rule, vision + told + "t.train()\n", options=BY_TRAINER)
    assert "ddp_find_unused_parameters=True" in result.code[1]


@pytest.mark.parametrize(
    ("name", "experts"),
    {
        "unsloth/Qwen3-30B-A3B-Instruct-2507": True,
        "unsloth/gpt-oss-20b": True,
        "mistralai/Mixtral-8x7B-v0.1": True,
        "unsloth/gemma-4-26B-A4B-it": True,
        "deepseek-ai/DeepSeek-V3.1": True,
        "ibm/PowerMoE-3b": True,
        "unsloth/DeepSeek-R1-Distill-Llama-8B": False,
        "unsloth/DeepSeek-R1-0528-Qwen3-8B": True,  # not told from the mixture that it was distilled from
        "unsloth/Meta-Llama-3.1-8B-bnb-4bit": False,
        "unsloth/gemma-3-270m-it": False,
        "unsloth/Phi-4": False,
    }.items(),
)
def test_a_mixture_of_experts_is_known_by_its_name(name: str, experts: bool) -> None:
    assert libraries.has_experts(name) is experts


def test_a_trainer_that_wraps_waits_for_experts_and_that_is_said() -> None:
    load = 'from unsloth import FastLanguageModel as F\nm = F.from_pretrained("x/Q-30B-A3B")\n'
    result = apply(rule, load + HEAD + "t.train()\n", options=BY_TRAINER)
    [note] = result.notes
    assert "experts" in note.why


def test_sentence_transformers_wrap_themselves() -> None:
    head = "from sentence_transformers import SentenceTransformerTrainer as S\nt = S(llm)\n"
    result = check_rewritten(rule, head + "t.train()\n", head + "t.train()\nddp.check_replicas(t.model)\n")
    [wraps] = result.notes
    assert "wraps it itself" in wraps.why


def test_a_trainer_that_evaluates_first_is_prepared_for_it() -> None:
    first = "t.evaluate()\n"
    last = wrapped("t.train()") + "t.evaluate()\n"
    check_rewritten(
        rule, HEAD + first + "t.train()\nt.evaluate()\n", HEAD + "ddp.prepare_trainer(t)\n" + first + last
    )


def test_a_trainer_without_a_name_is_declined() -> None:
    result = check_untouched(rule, "from trl import SFTTrainer\nSFTTrainer(llm).train()")
    [decline] = result.declined
    assert "give it one" in decline.why


TOLD = {
    "one line": (
        't = SFTTrainer(llm, args=SFTConfig("o"))',
        't = SFTTrainer(llm, args=SFTConfig("o", ddp_find_unused_parameters=False))',
    ),
    "one argument per line": (
        'args = SFTConfig(\n    output_dir = "o",  # here\n)\nt = SFTTrainer(llm, args=args)',
        'args = SFTConfig(\n    output_dir = "o",  # here\n    ddp_find_unused_parameters = False,\n)\n'
        "t = SFTTrainer(llm, args=args)",
    ),
    "said already": (
        't = SFTTrainer(llm, args=SFTConfig("o", ddp_find_unused_parameters=True))',
        't = SFTTrainer(llm, args=SFTConfig("o", ddp_find_unused_parameters=True))',
    ),
}


@pytest.mark.parametrize(("before", "after"), TOLD.values(), ids=TOLD.keys())
def test_a_trainer_that_wraps_is_told_about_unused_parameters(before: str, after: str) -> None:
    head = "from trl import SFTConfig, SFTTrainer\n"
    check_rewritten(
        rule,
        f"{head}{before}\nt.train()\n",
        f"{head}{after}\nt.train()\nddp.check_replicas(t.model)\n",
        options=BY_TRAINER,
    )


def test_dead_arguments_are_not_told() -> None:
    code = "from trl import SFTConfig\nif False:\n    args = SFTConfig('o')\n"
    check_untouched(rule, code, options=BY_TRAINER)


def test_names_of_the_notebook_are_not_taken() -> None:
    result = apply(rule, HEAD + "ddp_model = ddp = 1\nt.train()")
    assert result.code[1].endswith(
        "ddp_ddp_model = ddp_ddp.wrap_trainer(t)  # nb2ddp: `model` itself stays as it is\n"
        "t.train()\nddp_ddp.check_replicas(ddp_ddp_model)"
    )


def test_the_ranks_are_compared_before_a_function_gives_training_back() -> None:
    go = "def go(resume):\n    {}return {}\ngo(True)\n"
    check_rewritten(
        rule,
        HEAD + go.format("", "t.train(resume_from_checkpoint=resume)"),
        HEAD
        + go.format(
            "ddp_model = ddp.wrap_trainer(t)  # nb2ddp: `model` itself stays as it is\n    ",
            "ddp.check_replicas(ddp_model, t.train(resume_from_checkpoint=resume))",
        ),
    )


def test_a_trainer_that_makes_its_model_wraps_it_itself() -> None:
    made = "from transformers import Trainer\nt = Trainer(model_init=make)\nt.train()\n"
    result = check_rewritten(rule, made, made + "ddp.check_replicas(t.model)\n")
    assert "makes the model" in result.notes[0].why


IN_TURNS = {
    "GRPO": ("from trl import GRPOTrainer\nt = GRPOTrainer(llm)\n", "GRPO keeps the completions of a prompt"),
    "DPO": ("from trl import DPOTrainer\nt = DPOTrainer(llm)\n", "the loss of DPOTrainer is not a mean over"),
    "packing": (HEAD + "a = SFTConfig(packing=True)\n", "packed rows are full"),
    "group_by_length": (HEAD + "a = SFTConfig(group_by_length=True)\n", "rows are grouped by length"),
    "a stream": (
        HEAD + "from datasets import load_dataset\nd = load_dataset('x', streaming=True)\n",
        "the data are streamed",
    ),
}


@pytest.mark.parametrize("case", IN_TURNS)
def test_the_report_says_why_batches_stay_as_they_are(case: str) -> None:
    source, reason = IN_TURNS[case]
    (change, _) = check_rewritten(rule, source + "t.train()\n", source + wrapped("t.train()")).changes
    assert change.why.startswith(
        f"train through one DDP wrapper; ranks take the notebook's micro-batches in turns ({reason}"
    )
    assert change.data is None


@pytest.mark.parametrize("source", [HEAD, HEAD + "a = SFTConfig(packing=False)\n", *TRAINERS.values()])
def test_the_report_says_that_samples_are_shared_out(source: str) -> None:
    if "GRPO" in source:
        pytest.skip("its groups stay whole")
    (change, _) = check_rewritten(rule, source + "t.train()\n", source + wrapped("t.train()")).changes
    assert "each step's samples are shared out by their lengths" in change.why
    assert change.data == EvenBatches()


def test_batches_notebook_is_told_to_the_run() -> None:
    after = HEAD + wrapped("t.train()").replace("(t)  #", '(t, batches="notebook")  #')
    options = Options(batches="notebook")
    (change, _) = check_rewritten(rule, HEAD + "t.train()\n", after, options=options).changes
    assert "in turns (--batches notebook)" in change.why
