"""Choose what a program is made of: the grammar's features, their weights, and what does not go together.

The first value of a feature is its plainest one: shrinking goes towards it. A program is the dict of its
features; `draw` makes it from a seed.
"""

# ruff: noqa: E501 (tables)

from __future__ import annotations

import random

from differential.recipes import RECIPES, STATE

VERSION = 3  # of the grammar: a seed means the same program as long as this stays
_DRAWN_AS = 2  # tests name seeds of this version: features added since are drawn after its own

Features = dict[str, str]


def _table(text: str) -> dict[str, dict[str, float]]:
    """``name: value*weight value ...`` by line; the weight is 1 where none is given."""
    table: dict[str, dict[str, float]] = {}
    for line in text.strip().splitlines():
        name, _, values = line.partition(":")
        pairs = (value.partition("*") for value in values.split())
        table[name.strip()] = {value: float(weight or 1) for value, _, weight in pairs}
    return table


COMMON = _table("""
source: torch*5 torch_generator numpy*2 numpy_rng pandas lists csv hf sklearn
seed: top*6 function*2 set_seed late none
n: 48*4 50*2 49 40
batch: 8*12 6*2 5 16*3
config: literals*2 constants dict class
device: no yes
filework: none*20 makedirs mkdir_try remove_try remove_suppress rmtree rmtree_try pathlib urlretrieve_try retry exists_load
""")

LOOP = _table("""
family: loop
task: tabular*5 binary regression tokens*2 lm*2 image pairs
dataset: tensor*4 class*2 list hf iterable split split_generator subset kfold augment
loader: direct*5 dict function peek generator_arg
shuffle: yes*2 no
drop_last: no*4 yes
sampler: none*8 weighted subset_random random
model: plain*4 module*3 batchnorm layernorm residual lazy compiled
optimizer: sgd momentum adam adamw*2 groups
form: for*4 enumerate*2 tqdm*2 while iterator zip function*3 function_global step_function class*2 main*2 generator run_epoch*2 phases fit*2
loss: functional*2 criterion*3 teacher sum manual weighted ignore smoothing none_mean aux penalty
loss_metric: last*3 runmean*3 sized*2 seen tensor list*2 ema deque meter
metric: none*3 acc*3 f1 tokens preds dict grad_norm
stepprint: no*3 every*2 postfix write
report: fstring*3 plain dict rounded logging table expression
control: none*6 break_acc break_loss patience*2 skip nan*2 nan_break try_step try_epoch time_limit warmup max_steps*2 interrupt unfreeze exit_after
best: no*3 loss acc val
accumulation: none*4 modulo modulo_last manual_counter
clip: none*3 norm*2 value norm_print
schedule: none*3 step_epoch step_batch plateau lambda onecycle manual
amp: none*4 autocast scaler
ema: none*6 copy averaged
eval: none*2 each*3 before after both
eval_form: function*3 inline
save: none*2 last*2 each checkpoint state_dir pickle_model
log: none*4 json csv csv_open jsonl_append with_loop logging_file numpy
order: zero_first*2 zero_after
own_loss: no*12 mean class_weights ignored row_mask row_weights selected two
wrapper: none*16 data_parallel data_parallel_function counted
rows_meet: no*9 counter gate outside numpy number grad_mode noise method
""")

ACCELERATE = LOOP | _table("""
family: accelerate
task: tabular*3 tokens lm regression
dataset: tensor*3 class hf list
loader: direct
shuffle: no*2 yes
sampler: none
model: plain*3 module layernorm
form: for*3 enumerate tqdm function main
accumulation: none*3 context modulo
loss_metric: last runmean list seen tensor gather
metric: none acc gathered
ema: none
amp: none
report: fstring plain accelerator_print
eval: none each after
save: none last unwrap
control: none*4 max_steps patience nan
wrapper: none
""")

TRAINER = COMMON | _table("""
family: trainer
task: bert*3 llama*3 llama_lora*2 token_cls regression bert_lora sft*2
source: torch*3 numpy lists
seed: top*4 set_seed none
trainer_data: class*3 hf*3 dicts iterable
accumulation: 1*3 2 4 3
length: epochs*2 steps
eval: none*2 epoch*2 steps before after before_after
eval_n: 16 18 15 13
metrics: none*2 accuracy loss_free
callback: none*4 printer stop_loss early lr_log file history
compute_loss: none*4 weighted smoothing_arg own_ce distil
best: no*3 yes
save: none*2 save_model save_pretrained state tokenizer save_load
report: none history metrics logs expression
optim: default*3 passed sgd
form: plain*3 function main two_trainers sweep
logging: 1*3 2 epoch
predict: no*3 yes
collator: default custom
clip: default none
smoothing_eval: no
library: none*6 dpo kto orpo cpo reward seq2seq sentence
override: none*5 training_step sampler dataloader optimizer scheduler log prediction_step evaluate curriculum
kept: none*5 list counter queue closure model_attribute iterator average file print
resume: no*4 yes
dropout: no*4 yes
arguments: none*4 by_length drop_last checkpointing cosine neftune first_step clip_small eval_delay weight_decay
listener: none*4 asks_eval stops_epoch per_substep counts_tokens changes_data snapshot
""")

RECIPE = _table(f"""
family: recipe
task: {" ".join(RECIPES)}
seed: top
n: 48*3 50 49 40
batch: 8*4 6 5 16*2
drop_last: no*3 yes
form: flat*3 function*2 factory class*2 main
state: none*2 {" ".join(STATE)}
print: epoch*2 step
eval: none*2 whole argmax single
save: none*2 last best each
schedule: none*2 cosine closure
clip: none*2 norm
dropout: no*4 yes
resume: no*3 yes
stop: no*4 patience
""")

FAMILIES = {
    "loop": (COMMON | LOOP, 6.0),
    "trainer": (TRAINER, 2.5),
    "accelerate": (COMMON | ACCELERATE, 1.5),
    "recipe": (RECIPE, 0.0),  # by the seed's last digit
}
RECIPE_DIGITS = (3, 4, 8)  # that no seed ends with that a test names


def table_of(features: Features) -> dict[str, dict[str, float]]:
    return FAMILIES[features["family"]][0]


def plainest(features: Features) -> Features:
    """The plainest program of the same family."""
    return {name: next(iter(values)) for name, values in table_of(features).items()}


def draw(seed: int, fixed: Features | None = None) -> Features:
    """The features of the program that ``seed`` stands for, but for those that are ``fixed``."""
    rng = random.Random(f"{_DRAWN_AS}-{seed}")
    names = list(FAMILIES)
    (family,) = rng.choices(names, [FAMILIES[name][1] for name in names])
    family = (fixed or {}).get("family", "recipe" if seed % 10 in RECIPE_DIGITS else family)
    features: Features = {}
    plainness = rng.choice([0.2, 0.5, 0.7])  # some programs are plain but for a few things, some are not
    for name, values in FAMILIES[family][0].items():
        (value,) = rng.choices(list(values), list(values.values()))
        features[name] = next(iter(values)) if rng.random() < plainness and name != "task" else value
    given = fixed or {}
    return settled({name: given.get(name, value) for name, value in features.items()})


def settled(features: Features) -> Features:
    """``features`` with what does not go together set back to its plainest value."""
    made = dict(features)
    plain = plainest(made)

    def back(*names: str) -> None:
        for name in names:
            if name in plain:
                made[name] = plain[name]

    if made["family"] == "trainer":
        _settle_trainer(made, back)
        _settle_library(made, back)
    elif made["family"] == "recipe":
        _settle_recipe(made, back)
    else:
        _settle_loop(made, back)
    return made


def _settle_loop(made: Features, back) -> None:  # type: ignore[no-untyped-def]
    task, form = made["task"], made["form"]
    if task in ("tokens", "lm", "image", "pairs") and made["source"] in ("pandas", "csv", "sklearn"):
        back("source")
    if task in ("regression", "binary") and made["source"] == "sklearn":
        back("source")
    if made["source"] == "hf":
        made["dataset"] = "hf" if task in ("tabular", "tokens", "lm") else made["dataset"]
        if made["dataset"] != "hf":
            back("source")
    if made["dataset"] == "hf" and (task not in ("tabular", "tokens", "lm")):
        back("dataset")
    if task == "pairs":
        back("loss", "metric", "dataset", "best")
        if form in ("zip",):
            back("form")
    if form == "phases":
        if made["dataset"] in ("kfold", "iterable"):
            back("dataset")
        made["loader"], made["eval"] = "dict", "none"
        back("control", "best", "accumulation", "ema", "stepprint")
    if form == "run_epoch":
        back("accumulation", "stepprint", "ema")
    if task in ("lm",):
        if made["loss"] not in ("functional", "criterion", "sum", "ignore"):
            back("loss")
        if made["model"] not in ("plain", "module"):
            back("model")
    if made["loss"] == "teacher" and (task != "tabular" or made["family"] == "accelerate"):
        back("loss")
    if made["control"] == "unfreeze" and (
        form in ("while", "iterator", "step_function", "phases") or made["dataset"] == "kfold"
    ):
        back("control")
    if task in ("binary", "regression") and made["loss"] in ("weighted", "ignore", "smoothing", "manual"):
        back("loss")
    if task == "regression" and made["metric"] in ("acc", "f1", "preds", "dict", "gathered"):
        back("metric")
    if made["metric"] == "tokens" and task != "lm":
        back("metric")
    if task == "lm" and made["metric"] in ("f1", "preds", "dict", "acc"):
        made["metric"] = "tokens" if made["family"] == "loop" else "none"
    if task in ("image", "tokens") and made["model"] == "residual":
        back("model")
    if task == "pairs" and made["model"] not in ("plain", "module", "layernorm"):
        back("model")
    if made["dataset"] in ("iterable",):
        back("sampler", "loader")
        made["shuffle"] = "no"
        if made["loss_metric"] in ("runmean", "sized", "tensor"):
            made["loss_metric"] = "seen"
        if made["accumulation"] == "modulo_last":
            made["accumulation"] = "modulo"
        if made["schedule"] == "onecycle":
            back("schedule")
        if form in ("zip",):
            back("form")
    if made["dataset"] == "kfold":
        back("loader", "sampler")
        if form not in ("for", "enumerate", "function", "run_epoch", "tqdm"):
            back("form")
        back("eval", "control", "schedule", "ema", "log", "report")
    if made["sampler"] != "none":
        made["shuffle"] = "no"
        if task not in ("tabular", "image", "tokens") and made["sampler"] == "weighted":
            back("sampler")
        if made["dataset"] in ("split", "split_generator", "subset", "hf"):
            back("sampler")
    if made["model"] == "compiled":
        back("model")
    if made["metric"] in ("none", "tokens", "grad_norm", "gathered", "preds") or task == "regression":
        if made["control"] == "break_acc":
            back("control")
        if made["best"] == "acc":
            back("best")
    if made["metric"] == "grad_norm" and made["clip"] not in ("norm", "norm_print"):
        back("metric")
    if made["eval"] not in ("each", "both") and (made["best"] == "val" or made["schedule"] == "plateau"):
        back("best")
    if form in ("while", "iterator", "step_function"):
        if made["control"] in ("patience", "try_epoch", "break_acc", "break_loss", "max_steps"):
            back("control")
        if made["schedule"] in ("step_epoch", "plateau"):
            back("schedule")
        back("best", "report")
        if form in ("while", "iterator") and made["eval"] in ("each", "both"):
            made["eval"] = "after"
    if made["control"] == "try_step" and made["accumulation"] == "context":
        back("control")
    if form in ("zip", "iterator", "while") and made["metric"] in ("preds",):
        back("metric")
    if made["accumulation"] not in ("none", "context") and made["schedule"] == "onecycle":
        back("schedule")
    if made["amp"] == "scaler" and made["clip"] == "norm_print":
        back("clip")
        if made["metric"] == "grad_norm":
            back("metric")
    if made["model"] in ("batchnorm", "lazy") and made["n"] == "49":
        back("n")
    if made["dataset"] == "kfold" and made["model"] in ("batchnorm", "lazy"):
        back("model")
    if form == "fit" and made["report"] == "logging":
        back("report")
    if form == "class":
        if made["control"] in ("max_steps", "warmup", "time_limit", "break_loss"):
            back("control")
        if made["log"] in ("with_loop", "json", "csv", "numpy"):
            back("log")
    if (
        form in ("fit", "class", "main", "while", "iterator", "step_function")
        and made["report"] == "expression"
    ):
        back("report")
    if form in ("fit", "class") and made["report"] == "table":
        back("report")
    if form == "fit" and made["log"] in ("json", "csv", "numpy"):
        back("log")
    if form in ("while", "iterator", "step_function"):
        back("log")
        if made["control"] == "warmup":
            back("control")
    if task not in ("tabular", "tokens", "image") or made["loss"] != "functional":
        back("own_loss")
    if task == "tokens" and made["model"] == "module":
        back("own_loss")
    if (
        task in ("lm", "pairs")
        or made["own_loss"] != "no"
        or (task == "tokens" and made["model"] == "module")
    ):
        back("rows_meet")
    if made["rows_meet"] == "method" and made["wrapper"] != "none":
        back("wrapper", "model")
    if made["family"] == "accelerate":
        if made["source"] == "hf" and made["dataset"] != "hf":
            back("source")
        if made["metric"] == "gathered" and task == "regression":
            back("metric")
        if made["loss"] in ("aux", "penalty"):
            back("loss")
        made["device"] = "no"


def _settle_trainer(made: Features, back) -> None:  # type: ignore[no-untyped-def]
    task = made["task"]
    if task == "sft":
        made["trainer_data"] = "hf"
        back("metrics", "compute_loss", "collator", "predict", "optim")
    if task in ("llama", "llama_lora", "regression", "sft", "token_cls") and made["metrics"] == "accuracy":
        back("metrics")
    if task not in ("bert", "bert_lora", "token_cls") and made["compute_loss"] in (
        "weighted",
        "own_ce",
        "distil",
    ):
        back("compute_loss")
    if task == "regression":
        back("compute_loss")
    if task in ("llama", "llama_lora") and made["compute_loss"] == "weighted":
        back("compute_loss")
    if made["best"] == "yes":
        made["eval"] = "epoch"
        made["length"] = "epochs"
    if made["callback"] == "early":
        made["best"], made["eval"], made["length"] = "yes", "epoch", "epochs"
    if made["trainer_data"] == "iterable":
        made["length"] = "steps"
        back("best", "callback")
        if made["eval"] == "epoch":
            made["eval"] = "steps"
    if made["form"] in ("two_trainers", "sweep"):
        back("best", "callback", "report")
    if made["report"] == "metrics" and made["eval"] == "none":
        back("report")


def _settle_library(made: Features, back) -> None:  # type: ignore[no-untyped-def]
    """What a subclass, a listener or another library's Trainer does not go with."""
    library = made["library"]
    if library != "none":
        made["task"] = "bert"
        back("metrics", "compute_loss", "collator", "predict", "optim", "trainer_data", "dropout", "source")
        if made["save"] in ("tokenizer", "save_load"):
            back("save")
        if made["override"] in ("sampler", "dataloader"):
            back("override")
        if made["arguments"] in ("by_length", "neftune", "checkpointing"):
            back("arguments")
        if made["seed"] == "none":
            back("seed")
        if library == "sentence" and made["kept"] != "none":
            back("kept")
    if made["task"] == "sft" and made["override"] in ("sampler", "dataloader"):
        back("override")
    if made["trainer_data"] == "iterable" and made["override"] in ("sampler", "dataloader"):
        back("override")
    if made["trainer_data"] == "iterable" and made["arguments"] in ("by_length", "eval_delay"):
        back("arguments")
    if made["override"] == "curriculum" and made["kept"] != "none":
        back("kept")
    if made["compute_loss"] in ("weighted", "own_ce", "distil") and made["override"] == "curriculum":
        back("override")
    if made["optim"] == "passed" and made["override"] in ("optimizer", "scheduler"):
        back("override")
    if made["form"] in ("function", "main", "sweep", "two_trainers") or made["best"] == "yes":
        back("resume")
    if made["form"] in ("function", "sweep") and made["kept"] in ("average", "counter", "model_attribute"):
        back("kept")
    if made["callback"] == "history":  # a training that has nothing left has no losses
        back("resume")
    if made["listener"] == "asks_eval" and made["eval"] not in ("epoch", "steps"):
        back("listener")
    if made["trainer_data"] == "iterable" and made["listener"] == "changes_data":
        back("listener")
    if made["clip"] == "none" and made["arguments"] == "clip_small":
        back("arguments")
    if made["arguments"] == "eval_delay" and made["eval"] not in ("epoch", "steps"):
        back("arguments")
    if made["arguments"] == "neftune" and made["task"] not in ("llama", "bert", "sft"):
        back("arguments")
    if made["kept"] == "print" and made["form"] == "sweep":
        back("kept")


def _settle_recipe(made: Features, back) -> None:  # type: ignore[no-untyped-def]
    if made["task"] == "moco" and made["state"] == "queue":  # both call something queue
        back("state")


def is_seeded(features: Features) -> bool:
    """Whether the program draws the same numbers each time that it is run."""
    return features["seed"] in ("top", "function", "set_seed")
