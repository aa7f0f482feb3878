"""Set features that do not go together back to their plainest values."""

from __future__ import annotations

from collections.abc import Callable

Features = dict[str, str]


def settle_loop(made: Features, back: Callable[..., None]) -> None:
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
    if made["rows_meet"] == "method" and (made["wrapper"] != "none" or made["model"] == "lazy"):
        back("wrapper", "model")
    if made["family"] == "accelerate":
        if made["source"] == "hf" and made["dataset"] != "hf":
            back("source")
        if made["metric"] == "gathered" and task == "regression":
            back("metric")
        if made["loss"] in ("aux", "penalty"):
            back("loss")
        made["device"] = "no"


def settle_trainer(made: Features, back: Callable[..., None]) -> None:
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


def settle_library(made: Features, back: Callable[..., None]) -> None:
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
    keeps = made["kept"] in ("counter", "average", "model_attribute") or made["override"] == "training_step"
    if made["callback"] == "history" or keeps:  # a training that has nothing left has no losses
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


def settle_recipe(made: Features, back: Callable[..., None]) -> None:
    if made["task"] == "moco" and made["state"] == "queue":  # both call something queue
        back("state")
