"""Choose what a program is made of: the grammar's features, their weights, and what does not go together.

The first value of a feature is its plainest one: shrinking goes towards it. A program is the dict of its
features; `draw` makes it from a seed.
"""

# ruff: noqa: E501 (tables)

from __future__ import annotations

import random

from differential.recipes import RECIPES, STATE
from differential.settling import Features as Features
from differential.settling import settle_library, settle_loop, settle_recipe, settle_trainer

VERSION = 3  # of the grammar: a seed means the same program as long as this stays
_DRAWN_AS = 2  # tests name seeds of this version: features added since are drawn after its own


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
        settle_trainer(made, back)
        settle_library(made, back)
    elif made["family"] == "recipe":
        settle_recipe(made, back)
    else:
        settle_loop(made, back)
    return made


def is_seeded(features: Features) -> bool:
    """Whether the program draws the same numbers each time that it is run."""
    return features["seed"] in ("top", "function", "set_seed")
