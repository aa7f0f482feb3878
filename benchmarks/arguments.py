"""Train with each choice of each argument on one process and on ranks, and write which give the same run.

    python benchmarks/arguments.py [CLASS[.ARGUMENT] ...] [--ranks 2] [--write] [--list] [--part I/N --rows FILE]

The choices are read from the dataclasses of the installed Transformers and TRL: enumerations, choices, booleans,
numbers that may be None, other numbers than the default, and words that a help text quotes. Each trains a tiny model.
A row of the table is: same (logs, parameters and names of files are those of one process); said (another run, and a
warning says so); refused (one process fails too: the library's words are given); not tried (it needs a service or
hardware); or a fault: silent, crash, hang. --write makes docs/arguments.md of the rows; of classes that were not run
its rows are kept. Exit code 1: a fault.
"""

# ruff: noqa: E501 (programs' text)

from __future__ import annotations

import argparse
import dataclasses
import enum
import json
import os
import re
import sys
import tempfile
import typing
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # ORPO and CPO are there

from tests.support import ROOT
from tests.support.ranks import Ended, RankServer, collect

PAGE = ROOT / "docs" / "arguments.md"
CLASSES = {
    "TrainingArguments": "transformers",
    "SFTConfig": "trl",
    "DPOConfig": "trl",
    "KTOConfig": "trl",
    "RewardConfig": "trl",
    "ORPOConfig": "trl.experimental.orpo",
    "CPOConfig": "trl.experimental.cpo",
}
FAULTS = ("silent", "crash", "hang")
# What one CPU without network cannot show, and what holds no choice.
NOT_TRIED = re.compile(
    r"output_dir|.*hub.*|run_name|project|trackio.*|report_to|deepspeed|fsdp.*|parallelism_config|local_rank|ddp_.*|"
    r"resume_from_checkpoint|torch_compile.*|use_liger_kernel|liger_kernel_config|tf32|fp16.*|use_cpu|max_steps|"
    r"num_train_epochs|.*_kwargs|debug|enable_jit_checkpoint|log_on_each_node|.*_on_each_node|do_\w+|label_names|"
    r"trust_remote_code|chat_template_path|dataset_num_proc|eos_token|pad_token|dataset_text_field|accelerator_config|"
    r"optim_args|optim_target_modules|length_column_name|dataloader_multiprocessing_context|is_encoder_decoder|"
    r"padding_value|router_aux_loss_coef|assistant_only_loss|disable_tqdm|skip_memory_metrics"
)
EVALUATES = {"eval_strategy": "steps", "eval_steps": 2}
SAVES = {"save_strategy": "steps", "save_steps": 2}
# What an argument needs beside it to have an effect.
WITH: dict[str, dict[str, Any]] = {
    **dict.fromkeys(
        "eval_steps eval_delay prediction_loss_only eval_do_concat_batches eval_accumulation_steps".split(),
        EVALUATES,
    ),
    **dict.fromkeys(
        "batch_eval_metrics per_device_eval_batch_size eval_use_gather_object eval_on_start".split(),
        EVALUATES,
    ),
    **dict.fromkeys(
        "bf16_full_eval include_for_metrics eval_packing generate_during_eval".split(), EVALUATES
    ),
    **dict.fromkeys("save_steps save_total_limit save_only_model".split(), SAVES),
    "load_best_model_at_end": {**EVALUATES, **SAVES},
    "metric_for_best_model": {**EVALUATES, **SAVES},
    "greater_is_better": {**EVALUATES, **SAVES, "metric_for_best_model": "loss"},
    "save_strategy": {**EVALUATES, "metric_for_best_model": "loss"},
    "dataloader_prefetch_factor": {"dataloader_num_workers": 1},
    "dataloader_persistent_workers": {"dataloader_num_workers": 1},
    "packing_strategy": {"packing": True},
    "ref_model_sync_steps": {"sync_ref_model": True},
    "ref_model_mixup_alpha": {"sync_ref_model": True, "ref_model_sync_steps": 1},
    "sync_ref_model": {"ref_model_sync_steps": 1},
    "precompute_ref_batch_size": {"precompute_ref_log_probs": True},
    "lr_scheduler_type=reduce_lr_on_plateau": EVALUATES,
    "lr_scheduler_type=cosine_with_min_lr": {"lr_scheduler_kwargs": {"min_lr": 1e-4}},
    "lr_scheduler_type=cosine_warmup_with_min_lr": {"lr_scheduler_kwargs": {"min_lr": 1e-4}},
    "lr_scheduler_type=warmup_stable_decay": {"lr_scheduler_kwargs": {"num_decay_steps": 2}},
    "loss_type=exo_pair": {"label_smoothing": 0.1},
    "discopop_tau": {"loss_type": "discopop"},
    "f_alpha_divergence_coef": {"f_divergence_type": "alpha_divergence"},
    "eval_packing": {"packing": True, **EVALUATES},
}
COMPILED = ("optim=adamw_torch_4bit", "optim=adamw_torch_8bit")  # C++, for minutes
VALUES: dict[str, list[Any]] = {  # where the default does not show one
    "gradient_accumulation_steps": [1, 3, 5],
    "per_device_train_batch_size": [1, 6],
    "eval_steps": [1],
    "save_steps": [1],
    "logging_steps": [2],
    "warmup_steps": [2],
    "eval_delay": [2],
    "max_length": [8, None],
    "max_grad_norm": [0.0, 0.1],
    "neftune_noise_alpha": [5.0],
    "include_num_input_tokens_seen": ["all", "non_padding", True],
    "metric_for_best_model": ["loss"],
    "include_for_metrics": [["inputs"], ["loss"]],
    "weight_decay": [0.1],
    "label_smoothing": [0.1],
    "label_smoothing_factor": [0.1],
    "loss_weights": [],
    "adam_epsilon": [1e-6],
    "ddp_timeout": [],
    "dataloader_num_workers": [2],
    "save_total_limit": [1],
    "precompute_ref_batch_size": [3],
    "f_divergence_type": ["forward_kl", "js_divergence", "alpha_divergence"],
    "pad_to_multiple_of": [8],
    "max_completion_length": [4],
    "log_level": ["error"],
    "log_level_replica": ["error"],
}

START = """
import ddp_support as ddp
ddp.init(seed=0)
import glob, json, os, random, torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Trainer, TrainingArguments
from tokenizers import Tokenizer, models, pre_tokenizers
from datasets import Dataset
words = ["<pad>", "<eos>", "<unk>", *(f"w{i}" for i in range(45))]
made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
draw = random.Random(0)
def text(least=3, most=9):
    return " ".join(draw.choice(words[3:]) for _ in range(draw.randrange(least, most)))
sizes = dict(vocab_size=48, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, pad_token_id=0, eos_token_id=1, attention_dropout=0.1)
def model(kind=LlamaForCausalLM, **more):
    torch.manual_seed(1)
    return kind(LlamaConfig(**sizes, **more))
base = dict(output_dir="o", per_device_train_batch_size=2, gradient_accumulation_steps=4, per_device_eval_batch_size=2,
    report_to=[], use_cpu=True, disable_tqdm=True, bf16=False, logging_steps=1, max_steps=3, learning_rate=1e-3, seed=3,
    save_strategy="no")
def train(trainer):
    ddp.init_process_group()
    kept = ddp.wrap_trainer(trainer)
    trainer.train()
    ddp.check_replicas(kept)
    no = ("runtime", "per_second", "preparation", "flos")
    logs = [{k: v for k, v in e.items() if not any(part in k for part in no)} for e in trainer.state.log_history]
    files = sorted(os.path.relpath(f, "o") for f in glob.glob("o/**", recursive=True))
    note(logs=logs, files=files, tokens=trainer.state.num_input_tokens_seen, best=trainer.state.best_model_checkpoint,
        params=[p.detach().float().norm() for p in trainer.model.parameters()])
"""
OF_TRL = """
import trl
from benchmarks.differential.runs import _replace_triton
_replace_triton()
base["max_length"] = 24
"""
PAIRS = 'rows = Dataset.from_list([{"prompt": text(), "chosen": " " + text(), "rejected": " " + text()} for _ in range(40)])\n'
PROGRAMS = {
    "TrainingArguments": """
rows = []
for _ in range(40):
    ids = tokenizer(text())["input_ids"]
    rows.append({"input_ids": ids, "attention_mask": [1] * len(ids), "labels": ids})
def pad(batch):
    size = max(len(row["input_ids"]) for row in batch)
    fill = {"input_ids": 0, "attention_mask": 0, "labels": -100}
    return {key: torch.tensor([row[key] + [value] * (size - len(row[key])) for row in batch]) for key, value in fill.items()}
def metrics(p, compute_result=True):
    return {"sum": float(abs(p.predictions).sum())} if compute_result else None
args = TrainingArguments(**{**base, **GIVEN})
train(Trainer(model(), args, train_dataset=rows, eval_dataset=rows[:7], data_collator=pad, compute_metrics=metrics))
""",
    "SFTConfig": OF_TRL
    + """
rows = Dataset.from_list([{"prompt": text(), "completion": " " + text()} for _ in range(40)])
if not GIVEN.get("completion_only_loss"):
    rows = rows.map(lambda row: {"text": row["prompt"] + row["completion"]}, remove_columns=["prompt", "completion"])
train(trl.SFTTrainer(model(), args=trl.SFTConfig(**{**base, **GIVEN}), train_dataset=rows, eval_dataset=rows.select(range(7)), processing_class=tokenizer))
""",
    "DPOConfig": OF_TRL
    + PAIRS
    + "train(trl.DPOTrainer(model(), ref_model=model(), args=trl.DPOConfig(**{**base, **GIVEN}), train_dataset=rows, "
    "eval_dataset=rows.select(range(5)), processing_class=tokenizer))\n",
    "KTOConfig": OF_TRL
    + """
rows = Dataset.from_list([{"prompt": text(), "completion": " " + text(), "label": i % 3 > 0} for i in range(40)])
train(trl.KTOTrainer(model(), ref_model=model(), args=trl.KTOConfig(**{**base, **GIVEN}), train_dataset=rows, eval_dataset=rows.select(range(5)), processing_class=tokenizer))
""",
    "RewardConfig": OF_TRL
    + PAIRS
    + """
from transformers import LlamaForSequenceClassification
scorer = model(LlamaForSequenceClassification, num_labels=1)
train(trl.RewardTrainer(scorer, args=trl.RewardConfig(**{**base, **GIVEN}), train_dataset=rows, eval_dataset=rows.select(range(5)), processing_class=tokenizer))
""",
    **{
        f"{name}Config": OF_TRL
        + PAIRS
        + f"from trl.experimental.{name.lower()} import {name}Config, {name}Trainer\n"
        + f"train({name}Trainer(model(), args={name}Config(**{{**base, **GIVEN}}), train_dataset=rows, "
        "eval_dataset=rows.select(range(5)), processing_class=tokenizer))\n"
        for name in ("ORPO", "CPO")
    },
}


@dataclasses.dataclass(frozen=True)
class Row:
    """What came of one value of one argument."""

    kind: str
    argument: str
    value: str
    verdict: str
    words: str = ""


def choices(kind: str) -> Iterator[tuple[str, str]]:
    """Yield each argument of a class with each of its values that are not the default, as JSON; "": not tried.

    What a class of TRL inherits is tried with Transformers' own.
    """
    import importlib

    import transformers

    inherited = {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
    made = getattr(importlib.import_module(CLASSES[kind]), kind)
    for field in dataclasses.fields(made):
        if kind != "TrainingArguments" and field.name in inherited:
            continue
        if NOT_TRIED.fullmatch(field.name):
            yield field.name, ""
            continue
        for value in _values(field):
            yield field.name, value


def _values(field: dataclasses.Field[Any]) -> list[str]:
    if field.name in VALUES:
        return [json.dumps(value) for value in VALUES[field.name]]
    default = field.default
    kinds = typing.get_args(field.type) or (field.type,)
    found: list[Any] = []
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, enum.Enum):
            found += [member.value for member in kind]
    found += list(field.metadata.get("choices") or ())
    if bool in kinds:
        found += [True, False]
    if not found and (str in kinds or list[str] in kinds):
        quoted = re.findall(r"[`'\"]([a-z][a-z_0-9]+)[`'\"]", str(field.metadata.get("help", "")))
        found += [[word] if str not in kinds else word for word in dict.fromkeys(quoted)]
    if not found and {int, float} & {*kinds}:
        known = default if isinstance(default, int | float) else 0
        found.append(known * 0.5 if isinstance(default, float) and known else known + 2)
    was = default.value if isinstance(default, enum.Enum) else default
    values = [value for value in dict.fromkeys(map(json.dumps, found)) if json.loads(value) != was]
    return [value for value in values if f"{field.name}={json.loads(value)}" not in COMPILED]


def judge(server: RankServer, kind: str, argument: str, text: str, ranks: int) -> Row:
    """Train with one value, as JSON, in one process and on ranks."""
    value = json.loads(text)
    given = {**WITH.get(argument, {}), **WITH.get(f"{argument}={value}", {}), argument: value}
    program = f"{START}\nGIVEN = {given!r}\n{PROGRAMS[kind]}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        jobs = [server.start(folder / f"{n}", program, n, limit=120) for n in (0, ranks)]
        one, several = (collect(folder / f"{n}", job)[0] for n, job in zip((0, ranks), jobs, strict=True))
        verdict, words = _verdict(one, several)
    return Row(kind, argument, text, verdict, words)


def _verdict(one: Ended, several: Ended) -> tuple[str, str]:
    if any(one.codes):
        return "refused", "one process does not end" if one.hung else _last_line(one)
    if several.hung:
        return "hang", ""
    if any(several.codes):
        return "crash", _last_line(several)
    warned = [line for line in several.ranks[0].err.splitlines() if "nb2ddp: WARNING" in line]
    said = warned[0].partition("WARNING: ")[2] if warned else ""
    difference = _difference(one.notes[0], several.notes[0])
    if not difference:
        return "same", said
    return ("said", said) if "not equal" in said else ("silent", difference)


def _last_line(ended: Ended) -> str:
    lines = [rank.err.strip().splitlines()[-1] for rank in ended.ranks if rank.code and rank.err.strip()]
    return lines[0] if lines else ""


def _difference(one: Any, other: Any, path: str = "") -> str:
    """Return the first thing that differs, or ""."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next((why for key in one if (why := _difference(one[key], other[key], f"{path}.{key}"))), "")
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next((why for n, (a, b) in pairs if (why := _difference(a, b, f"{path}[{n}]"))), "")
    if isinstance(one, int | float) and isinstance(other, int | float):
        near = abs(one - other) <= 5e-6 * max(abs(one), 1) or (one != one and other != other)
        return "" if near else f"{path}: {one} and {other}"
    return "" if one == other else f"{path}: {str(one)[:60]} and {str(other)[:60]}"


def run(
    wanted: list[str],
    ranks: int,
    known: Collection[tuple[str, str, str]] = (),
    part: tuple[int, int] = (0, 1),
) -> Iterator[Row]:
    """Yield a row for each value of the classes or arguments that are wanted, or of all, but for those known.

    Of several ``part``s, each yields other rows.
    """
    modules = ("accelerate", "numpy", "transformers", "datasets", "torch._dynamo", "trl", "tokenizers")
    server = RankServer(
        (*modules, "trl.experimental.orpo", "trl.experimental.cpo", "benchmarks.differential.runs"),
        variables={"NB2DDP_WITHOUT": ""},  # a choice may need what the tests do without
    )
    try:
        for kind in sorted(CLASSES, key=lambda kind: [*wanted, kind].index(kind)):
            for argument, value in list(choices(kind))[part[0] :: part[1]]:
                asked = not wanted or kind in wanted or f"{kind}.{argument}" in wanted
                if not asked or (kind, argument, value) in known:
                    continue
                if not value:
                    yield Row(kind, argument, "", "not tried")
                else:
                    yield judge(server, kind, argument, value, ranks)
    finally:
        server.close()


def page(rows: list[Row], ranks: int) -> str:
    """Return the table as a page."""
    import transformers
    import trl

    counts = Counter(row.verdict for row in rows)
    made = [
        "# Every choice of every argument",
        "",
        f"`python benchmarks/arguments.py --write` trains a tiny model with each value on one process and on {ranks} "
        f"ranks (CPU), here with Transformers {transformers.__version__} and TRL {trl.__version__}: "
        + ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        + ". *Same*: logs, parameters and names of files are those of one process, with the words of a warning about "
        "speed, if there was one. *Refused*: one process fails too. *Not tried*: it needs a service, another device, "
        "or holds no choice.",
    ]
    for kind in CLASSES:
        of_kind = [row for row in rows if row.kind == kind]
        tried = [row for row in of_kind if row.verdict != "not tried"]
        left = sorted({f"`{row.argument}`" for row in of_kind if row.verdict == "not tried"})
        made += ["", f"## {kind}", "", "| argument | value | run | words |", "|---|---|---|---|"]
        for row in tried:
            words = re.sub(r"/\S+/", "", row.words).replace("|", "\\|").replace("<", "&lt;")[:160]
            made.append(f"| `{row.argument}` | `{row.value}` | {row.verdict} | {words} |")
        known = {(row.argument, row.value) for row in of_kind}
        missing = [f"`{name}={value}`" for name, value in choices(kind) if (name, value) not in known]
        if missing:
            made += ["", f"Not run yet: {', '.join(missing)}."]
        if left:
            made += ["", f"Not tried: {', '.join(left)}."]
    return "\n".join(made) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wanted", nargs="*", metavar="CLASS[.ARGUMENT]")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--missing", action="store_true", help="only what has no row yet")
    parser.add_argument("--list", action="store_true", help="print the choices, and train nothing")
    parser.add_argument("--part", default="0/1", help="I/N: every Nth row, from the Ith on (parts at once)")
    parser.add_argument(
        "--rows", type=Path, default=ROOT / "build" / "arguments.jsonl", help="where rows are kept"
    )
    given = parser.parse_args()
    if given.list:
        for kind in CLASSES:
            for argument, value in choices(kind):
                print(kind, argument, value or "not tried")
        return
    kept = (
        [Row(**json.loads(line)) for line in given.rows.read_text().splitlines()]
        if given.rows.exists()
        else []
    )
    new: dict[tuple[str, str, str], Row] = {}
    given.rows.parent.mkdir(parents=True, exist_ok=True)
    done = {(row.kind, row.argument, row.value) for row in kept} if given.missing else ()
    number, _, parts = given.part.partition("/")
    for row in run(given.wanted, given.ranks, done, (int(number), int(parts))):
        new[row.kind, row.argument, row.value] = row
        print(
            f"{row.kind:18} {row.argument:32} {row.value[:24]:24} {row.verdict:9} {row.words[:110]}",
            flush=True,
        )
        others = [old for old in kept if (old.kind, old.argument, old.value) not in new]
        rows = [*others, *new.values()]
        given.rows.write_text("".join(json.dumps(dataclasses.asdict(row)) + "\n" for row in rows))
    if given.write:  # of a run with --missing too
        every = [Row(**json.loads(line)) for line in given.rows.read_text().splitlines()]
        PAGE.write_text(page(every, given.ranks), encoding="utf-8")
    print(Counter(row.verdict for row in new.values()))
    sys.exit(any(row.verdict in FAULTS for row in new.values()))


if __name__ == "__main__":
    main()
