"""Know the frameworks whose training nb2ddp does not convert: how each is recognised, and what to do instead.

Plain data first, one line each, then how a notebook's calls and commands are looked up in it. An import alone says
nothing: what counts is the call that trains, and where the object on which it is made comes from.
"""

# ruff: noqa: E501 (a framework is one line of the table)

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from itertools import pairwise, takewhile
from typing import Literal

import libcst as cst

from nb2ddp import libraries
from nb2ddp.analysis.facts import Facts, asked_once
from nb2ddp.analysis.shell_commands import shell_calls
from nb2ddp.source import cst_nodes
from nb2ddp.source.cells import last_name


@dataclass(frozen=True)
class Framework:
    """A framework that trains by itself.

    ``origins``: patterns of the dotted names that its objects come from. ``methods``: those of its objects that train.
    ``functions``: patterns of the dotted names of functions and classes that train, or mark a loop as its own.
    ``advice``: what it does itself, and what trains on several GPUs. ``beside``: whether it may stand in a notebook
    whose training is converted: "always", because every rank may do the same; "after" a Trainer's, on rank 0 alone.
    """

    name: str
    origins: str
    methods: str
    functions: str
    advice: str
    beside: Literal["never", "after", "always"] = "never"


_NO_GPUS = "it does not divide its training over several GPUs"
_TORCHRUN = "torchrun --nproc_per_node 2"
# The first line that fits a call is taken.
FRAMEWORKS = (
    Framework("Lightning Fabric", "lightning.Fabric lightning.fabric.* lightning_fabric.* pytorch_lightning.Fabric", "backward setup launch", "", 'in a notebook Fabric(devices=2, strategy="ddp_notebook") runs the function that fabric.launch(train) gets on two GPUs; in a script strategy="ddp"'),
    Framework("LightningCLI", "", "", "lightning.pytorch.cli.LightningCLI pytorch_lightning.cli.LightningCLI", "it makes its Trainer of a command line; make L.Trainer(...) in a cell and call its fit(), which nb2ddp does convert"),
    Framework("a Trainer of Lightning's that it cannot follow", "lightning.* pytorch_lightning.*", "fit", "", "make L.Trainer(...) in a cell, or in a function that returns it, and call fit() of that"),
    Framework("NeMo's recipes", "", "", "nemo.collections.*_recipe", 'nemo_run starts the processes itself; give the recipe num_gpus_per_node=2, and its LocalExecutor ntasks_per_node=2, launcher="torchrun"'),
    Framework("NeMo", "nemo.*", "fit set_trainer setup_training_data", "nemo.collections.*.models.*Model nemo.collections.llm.finetune nemo.collections.llm.pretrain nemo.collections.llm.train", f"it trains with Lightning: give its trainer devices=2 and start the code as a script with {_TORCHRUN}"),
    Framework("fastai", "fastai.* fastbook.* tsai.*", "fit fit_one_cycle fine_tune fit_flat_cos fit_sgdr", "", "in fastai 2 put the training into a function, with `with learn.distrib_ctx(in_notebook=True):` around it, and start that with Accelerate's notebook_launcher(train, num_processes=2)"),
    Framework("Ultralytics", "ultralytics.*", "train", "", "its train(device=[0, 1]) runs DDP by itself"),
    Framework("Composer", "composer.*", "fit", "", "it trains on two GPUs as a script that is started with `composer -n 2 script.py`"),
    Framework("Ignite", "ignite.*", "", "ignite.engine.Engine ignite.engine.engine.Engine ignite.engine.create_supervised_trainer", 'its idist.Parallel(backend="nccl", nproc_per_node=2, start_method="fork") runs a training function on two GPUs of a notebook, with idist.auto_model, auto_optim and auto_dataloader in it'),
    Framework("MONAI's engines", "monai.engines.* monai.apps.*", "run", "", "they are Ignite's: its idist.Parallel(backend=\"nccl\", nproc_per_node=2, start_method=\"fork\") runs a training function on two GPUs of a notebook; a loop with backward() in a cell is converted"),
    Framework("Darts", "darts.models.* darts.ad.*", "fit", "", 'its torch models take pl_trainer_kwargs={"accelerator": "gpu", "devices": 2, "strategy": "ddp_notebook"}, which go to Lightning; its other models train on the CPU'),
    Framework("NeuralForecast", "neuralforecast.*", "fit cross_validation", "", 'its models hand devices=2 and strategy="ddp_notebook" on to Lightning'),
    Framework("Spark", "pyspark.* synapse.*", "fit", "", "it trains on the machines of a Spark cluster", beside="after"),
    Framework("skorch", "skorch.*", "fit partial_fit", "", "with its AccelerateMixin a script that is started with `accelerate launch` trains on several GPUs"),
    Framework("Stable-Baselines3", "stable_baselines3.* sb3_contrib.*", "learn", "", _NO_GPUS),
    Framework("Detectron2", "detectron2.engine.*", "train", "detectron2.engine.launch", "its launch(main, num_gpus_per_machine=2) starts DDP by itself, in a script"),
    Framework("MMEngine", "mmengine.runner.* mmengine.Runner*", "train", "", f'with launcher="pytorch" its Runner runs DDP in a script that is started with {_TORCHRUN}'),
    Framework("MMCV", "mmcv.runner.*", "train run", "mmdet.*train_detector mmseg.*train_segmentor", f'after mmcv.runner.init_dist("pytorch") it trains on several GPUs with distributed=True, in a script that is started with {_TORCHRUN}'),
    Framework("Flair", "flair.trainers.*", "train fine_tune", "", "its trainer's multi_gpu=True trains on several GPUs, in a script whose main function flair.distributed_utils.launch_distributed starts"),
    Framework("spaCy", "spacy.*", "update", "spacy.cli.train.*", _NO_GPUS),
    Framework("axolotl", "axolotl.*", "train", "axolotl.train.train axolotl.cli.train.*", "`axolotl train config.yml` trains on all visible GPUs, in a process for each"),
    Framework("LLaMA-Factory", "llamafactory.*", "", "llamafactory.train.*", "`llamafactory-cli train` trains on all visible GPUs, in a process for each"),
    Framework("SetFit", "setfit.*", "train", "", "its arguments hold two batch sizes, of the embeddings and of the head, which nb2ddp does not divide; the embeddings alone can be trained with a SentenceTransformerTrainer, which it converts"),
    Framework("Sentence Transformers' old fit()", "sentence_transformers.*", "fit old_fit", "", "its loop over batches is in the library; train with a SentenceTransformerTrainer, or a CrossEncoderTrainer, which nb2ddp converts"),
    Framework("Ray", "ray.*", "fit", "ray.tune.run ray.train.*Trainer", 'its Trainers start a worker on each GPU with ScalingConfig(num_workers=2, use_gpu=True), and Tune runs a trial on each with tune.with_resources(train, {"gpu": 1})'),
    Framework("Flower", "", "", "flwr.simulation.* flwr.client.start_*", "it starts a process for each client, and gives it GPUs by client_resources"),
    Framework("PantheraML", "", "", "pantheraml.*", "it is a fork of Unsloth that trains on several GPUs by itself; import the same names from unsloth"),
    Framework("DeepSpeed", "deepspeed.*", "", "deepspeed.initialize", "it runs on two GPUs as a script that is started with `deepspeed --num_gpus 2 script.py`"),
    Framework("Colossal-AI", "colossalai.*", "", "colossalai.launch* colossalai.initialize colossalai.booster.Booster", "it runs on two GPUs as a script that is started with `colossalai run --nproc_per_node 2 script.py`"),
    Framework("PyTorch/XLA", "torch_xla.*", "", "torch_xla.*spawn torch_xla.launch torch_xla.*xla_device torch_xla.device torch_xla.*optimizer_step", "it trains on a TPU, and nb2ddp converts training on CUDA GPUs; on a TPU its own launch() runs a process on each core"),
    Framework("FSDP", "", "", "torch.distributed.fsdp.*FullyShardedDataParallel torch.distributed.fsdp.*fully_shard torch.distributed._composable.fsdp.fully_shard", f"it shards the model over processes of its own: start it as a script with {_TORCHRUN}; nb2ddp's --strategy fsdp shards a Trainer's model"),
    Framework("a pipeline over several GPUs", "", "", "torch.distributed.pipeline*.*Pipe torch.distributed.pipelining.* torch.distributed.rpc.init_rpc torchgpipe.GPipe fairscale.nn.Pipe", "it spreads one model over them; nb2ddp converts a loop whose whole model is on one GPU"),
    Framework("processes that it starts itself", "", "", "torch.multiprocessing.spawn torch.multiprocessing.start_processes torch.multiprocessing.spawn.*", "where they train with DDP there is nothing to convert: give their number, and run its code as a script"),
    Framework("Opacus", "opacus.*", "make_private make_private_with_epsilon", "", "its noise belongs to the gradients of single samples, which DDP would average first; for several GPUs it has a DifferentiallyPrivateDistributedDataParallel of its own, in a script under torchrun"),
    Framework("TensorFlow", "tensorflow.* tf_keras.* transformers.TF*", "fit fit_generator train_on_batch apply_gradients minimize", "tensorflow.GradientTape", "make and compile the model under tf.distribute.MirroredStrategy().scope() for several GPUs", beside="after"),
    Framework("Keras", "keras.* keras_core.* keras_nlp.* keras_hub.* keras_cv.*", "fit train_on_batch", "", "on TensorFlow make and compile the model under tf.distribute.MirroredStrategy().scope(), on JAX set keras.distribution.DataParallel(); on PyTorch its fit() trains on one GPU", beside="after"),
    Framework("JAX", "jax.* flax.* transformers.Flax*", "", "jax.grad jax.value_and_grad flax.*grad optax.*", "shard the batch over the GPUs with jax.sharding", beside="after"),
    Framework("PaddlePaddle", "paddle.* paddlenlp.*", "fit train", "paddle.optimizer.*", "start it as a script with `python -m paddle.distributed.launch --gpus 0,1 script.py`; a loop needs paddle.distributed.init_parallel_env(), paddle.DataParallel(model) and a paddle.io.DistributedBatchSampler for that"),
    Framework("AutoGluon", "autogluon.*", "fit", "", "its MultiModalPredictor trains on as many GPUs as env.num_gpus says, its other predictors on one GPU or the CPU", beside="after"),
    Framework("step() of TRL's older PPOTrainer", "trl.PPOTrainer trl.*.PPOTrainer", "step", "", "TRL 0.12 and newer have a PPOTrainer that trains by train(), which nb2ddp does convert"),
    Framework("Pyro", "pyro.infer.*", "step", "", "for several GPUs it has pyro.optim.HorovodOptimizer, in a script that horovodrun starts"),
    Framework("NumPyro", "numpyro.*", "run", "", 'it computes with JAX: MCMC(..., chain_method="parallel") draws a chain on each GPU, and SVI trains on one'),
    Framework("MXNet", "mxnet.*", "fit", "mxnet.gluon.Trainer mxnet.autograd.record", "see its own documentation for several GPUs", beside="after"),
    Framework("MLX", "mlx.* mlx_lm.*", "", "mlx.nn.value_and_grad mlx.core.grad mlx_lm.tuner.*", "it trains on Apple's GPUs, and nb2ddp converts training on CUDA GPUs"),
    Framework("a service's fine-tuning", "openai.* mistralai.* together.* cohere.* azure.* google.genai.* boto3.*", "fine_tuning.jobs.create fine_tuning.create fine_tunes.create finetuning.create_finetuned_model tunings.tune jobs.create create_model_customization_job", "openai.FineTuningJob.create openai.FineTune.create google.generativeai.create_tuned_model vertexai.*tuning.*train", "it runs on the service's GPUs", beside="after"),
    Framework("a job of a cloud", "sagemaker.* google.cloud.aiplatform.* azure.* azureml.* boto3.*", "fit run submit jobs.create_or_update create_training_job", "sagemaker.remote_function.*remote sky.launch sky.jobs.launch", "the job's own settings say on how many GPUs it runs", beside="after"),
    Framework("a job of Kubeflow", "kubeflow.*", "train create_job", "", "the job's own settings say on how many GPUs it runs", beside="after"),
    Framework("XGBoost", "xgboost.*", "fit", "xgboost.train xgboost.cv", "DDP does not change its training; for several GPUs it has xgboost.dask and xgboost.spark", beside="always"),
    Framework("LightGBM", "lightgbm.*", "fit", "lightgbm.train lightgbm.cv", "DDP does not change its training", beside="always"),
    Framework("CatBoost", "catboost.*", "fit", "catboost.train", 'DDP does not change its training; its task_type="GPU" takes all visible GPUs by itself', beside="always"),
    Framework("scikit-learn", "sklearn.* imblearn.*", "fit partial_fit", "", "its models train on the CPU", beside="always"),
)  # fmt: skip
STARTS = "it starts the processes itself"
# What a command line trains with: the pattern of its first words, and how that trains on two GPUs.
COMMANDS = (
    ("torchrun", f"{STARTS}: give it --nproc_per_node 2"),
    ("accelerate launch", f"{STARTS}: give it --multi_gpu --num_processes 2"),
    ("deepspeed", f"{STARTS}: give it --num_gpus 2"),
    ("colossalai run", f"{STARTS}: give it --nproc_per_node 2"),
    ("composer", f"{STARTS}: give it -n 2"),
    ("tune run", "give it --nproc_per_node 2, and a recipe whose name has `distributed` in it"),
    ("trl", f"{STARTS}: give it --num_processes 2"),
    ("llamafactory-cli", "it trains on all visible GPUs, in a process for each"),
    ("axolotl", "it trains on all visible GPUs, in a process for each"),
    ("swift", "with NPROC_PER_NODE=2 in its environment it starts two processes itself"),
    ("yolo", "its device=0,1 runs DDP by itself"),
)
# The methods and functions that train in frameworks of which nothing is known.
_TRAINING = re.compile(
    r"(?:fit|(?:start_)?train(?:ing)?)(?:_all|_one_cycle|_generator|_model|_and_(?!\w*split)\w+|(?:_one)?_epoch)?|fine_?tune|learn|backward|run(?:_all|_training(?:_loop)?)?"
)
# By its name and its arguments' names, a function that trains: it gets an optimizer and data, or a model to train.
_GETS = re.compile(
    r"(?!(?:from|make|create|build|init)_(?!\w*(?:train|fit)))(?=[a-z].*optim).*(?:loader|data)|train_\w.*[ _](?:model|net|optimizer|epochs)\b"
)
_HOW_LONG = re.compile(r"\d\d|[2-9]|(?!mode\b)\w+ *=[^=]|\w*(?:param|config|arg|setting|data|loader)s?$")
_NAMED = re.compile(r"\{(?:shlex\.split\()?(\w+)(?:\.split\(\)|\))?\}|\$(\w+)")  # {command} and $command
_TRAINER = re.compile(r"(?<!pre)train(?!ed)|runner|learner|engine|solver|agent", re.IGNORECASE)
_PREPARES = re.compile(
    r"(?:Label|Hot|Ordinal|Target)Encoder|Scaler|[Pp]reprocess|SentencePiece|(?:Norm|Stand|Token|Vector)\w*i[sz]"
)
_METHODS = "sft|dpo|grpo|kto|ppo|orpo|lora|dreambooth"
_OTHER = (
    "(?!.*(?:convert|merge|export|quanti|infer|eval|generat|prepar|process|split|download|clean|serve|demo"
    "|(?<![a-z])(?:app|tests?)(?![a-z])))"
)
_TRAINS = re.compile(rf"(?i)(?:train|fine[-_]?tun)(?!ed)|^{_OTHER}(?:.*[^a-z])?(?:{_METHODS}|run_\w+)")
_SUBCOMMAND = re.compile(rf"(?i){_OTHER}.* (?:fit|(?:pre)?train|fine[-_]?tune|{_METHODS})")
_PYTHON = re.compile(r"(?:.*/)?(?:python[\d.]*|\{sys\.executable\}|ipython|%run)$")
_FILES = libraries.ASKING_PROGRAMS | frozenset(
    "mkdir cd cp mv rm unzip tar gzip wget curl git head tail find grep wc du touch chmod ln sed awk zip pip pip3 conda "
    "apt apt-get export source hf huggingface-cli wandb kaggle gsutil aws gdown tree diff tensorboard screen tmux".split()
)


@dataclass(frozen=True)
class Training:
    """A call that trains, and the words for it.

    ``is_beside``: the rest of the notebook may be converted. ``package``: of what nb2ddp does not know, where it is seen.
    """

    call: cst.Call
    why: str
    is_beside: bool = False
    package: str = ""


@asked_once
def trainings(facts: Facts) -> tuple[Training, ...]:
    """List the calls that train with a framework of `FRAMEWORKS`, in order."""
    found = []
    for call in facts.live_calls:
        passed = [argument.value for argument in call.args if isinstance(argument.value, cst.Attribute)]
        used = () if facts.is_collective(call) else (_framework_of(facts, f) for f in (call.func, *passed))
        if (framework := next(filter(None, used), None)) is not None and not facts.is_switched_off(call):
            why = f"this notebook trains with {framework.name}, which nb2ddp does not convert: {framework.advice}"
            after = framework.beside == "after" and bool(facts.train_calls) and facts.is_after_training(call)
            found.append(Training(call, why, framework.beside == "always" or after))
    return tuple(found)


def _framework_of(facts: Facts, function: cst.BaseExpression) -> Framework | None:
    """Return the framework of which a function, or a method of an object, trains."""
    name, call = facts.qualified(function), facts.parent(function)
    owner = function.value if isinstance(function, cst.Attribute) else None
    method = function.attr.value if isinstance(function, cst.Attribute) else ""
    if name.endswith("multiprocessing.Process") and call is not None:  # an argument may be what trains
        own = (d.node for each in facts.nodes(cst.Name, within=call) for d in facts.definitions(each.value))
        bodies = (f.body for target in own for f in facts.nodes(cst.FunctionDef, within=target))
        if any(facts.runs(body, facts.gives_gradients) for body in bodies):
            name = "torch.multiprocessing.start_processes"
    if isinstance(call, cst.Call) and facts.is_arguments_class(function):
        _, given = facts.argument(call, "deepspeed")
        known = facts.value(given) or facts.bound(given)  # else None, or what may be that
        asked = isinstance(known, cst.BaseString | cst.Dict | cst.Call | cst.IfExp | cst.Subscript)
        name = "deepspeed.initialize" if asked else name
    part = isinstance(owner, cst.Attribute) and not facts.assigned(owner.attr.value)  # tr.lr_scheduler.step()
    if (method not in _ALL_METHODS or (part and method == "step")) and _ALL_FUNCTIONS.match(name) is None:
        return None
    path = f".{cst_nodes.code_of(function)}"
    made = facts.origins(owner) if owner is not None else frozenset()
    for framework in FRAMEWORKS:
        if _fits(name, framework.functions):
            return framework
        named = any(path.endswith(f".{method}") for method in framework.methods.split())
        if named and any(_fits(origin, framework.origins) for origin in made):
            return None if owner is not None and _only_transforms(facts, owner) else framework
    return None


def _only_transforms(facts: Facts, owner: cst.BaseExpression) -> bool:
    """Return whether what is fitted prepares data, and predicts nothing: an encoder of labels, a scaler."""
    functions = (call.func for call in facts.live_calls if isinstance(call.func, cst.Attribute))
    code = cst_nodes.code_of(owner)
    asked = {function.attr.value for function in functions if cst_nodes.code_of(function.value) == code}
    return "transform" in asked and not any(method.startswith(("predict", "score")) for method in asked)


_ALL_METHODS = frozenset(each.rpartition(".")[2] for f in FRAMEWORKS for each in f.methods.split())
_ALL_FUNCTIONS = re.compile("|".join(translate(each) for f in FRAMEWORKS for each in f.functions.split()))


def _fits(name: str, patterns: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns.split())


def trains_whole(facts: Facts, node: cst.CSTNode) -> bool:
    """Return whether a node runs a training that nb2ddp does not convert, and each rank does whole."""
    return facts.runs(node, facts.once(_all_calls).__contains__)


def _all_calls(facts: Facts) -> frozenset[cst.Call]:
    return frozenset(training.call for training in (*trainings(facts), *unknown_trainings(facts)))


def unknown_trainings(facts: Facts) -> Iterator[Training]:
    """Yield the calls that seem to train with something that nb2ddp does not know, those by their names first."""
    known = {training.call for training in trainings(facts)}
    names = {c: (facts.method(c) or facts.qualified(c.func)).rpartition(".")[2] for c in facts.live_calls}
    for call, name in sorted(names.items(), key=lambda named: _TRAINING.fullmatch(named[1]) is None):
        words = " ".join([name, *(last_name(a.keyword or a.value) for a in call.args)])
        gets = bool(_GETS.match(words) and facts.function_names(call))  # run_epochs(net, optimizer, rows)
        if not (gets or _TRAINING.fullmatch(name)) or call in known or any(facts.run_by(call.func)):
            continue
        classes = (facts.around(site, cst.ClassDef) for site in facts.sites(call))  # of uncalled methods
        if all(classes) or facts.is_training(call) or not _may_train(facts, call, name):
            continue
        made = facts.origins(facts.owner(call) or call.func) or facts.origins(call)
        packages = {origin.partition(".")[0] for origin in made}
        package = packages.pop() if len(packages) == 1 else ""
        if package in libraries.TRAINER_PACKAGES | {"torch", "torchvision", "timm", "diffusers"}:
            continue
        code = re.sub(r"\(.*\)", "(...)", cst_nodes.one_line(call.func))
        why = f"nb2ddp does not see what `{code}()` trains with, so it cannot divide its training over GPUs"
        if package:
            why = f"this notebook calls `{code}()` of {package}, whose training nb2ddp does not convert: it converts"
            why += " what cells make: loops with backward(), Trainers of Transformers, TRL, Unsloth and Lightning"
        yield Training(call, why, package=package)


def _may_train(facts: Facts, call: cst.Call, name: str) -> bool:
    """Return whether a call trains: ``train(100)``. ``model.train(False)`` only switches the model's mode."""
    owner = facts.owner(call) or call.func
    names = {cst_nodes.code_of(owner), *facts.origins(owner)}
    if any(map(_PREPARES.search, names)):
        return False
    if name in ("run", "run_all"):  # run(mode="train")
        told = {cst_nodes.string_value(text) or "" for text in facts.nodes(cst.SimpleString, within=call)}
        starts = facts.qualified(call.func) in libraries.RUNNING_FUNCTIONS
        return not starts and any("train" in part.rpartition(".")[2].lower() for part in names | told)
    if owner is call.func:
        return name != "train" or bool(call.args) or facts.is_of_import(call.func)
    if name != "train":
        # a model is made before it is fitted: ImageOps.fit(image) is a function of a module
        of_module = isinstance(owner, cst.Name) and facts.is_imported(owner.value) and name == "fit"
        return not of_module and not _only_transforms(facts, owner)
    made = facts.parent(call)  # model = model.train() only switches its mode
    keeps = isinstance(made, cst.Assign) and cst_nodes.code_of(made.targets[0].target) not in names
    more = len(call.args) > 1 or any(_HOW_LONG.match(cst_nodes.code_of(argument)) for argument in call.args)
    return keeps or more or any(_TRAINER.search(part.rpartition(".")[2]) for part in names)


def commands(facts: Facts) -> Iterator[Training]:
    """Yield the shell lines, and the programs that ``subprocess`` starts, that seem to train."""
    for shell in shell_calls(facts):
        text = f"%{shell.command}" if shell.name == "run" else shell.command if shell.is_shell else ""
        if not (shell.is_install or facts.is_dead(shell.call)):
            yield from _of_command(facts, shell.call, text)
    for call in facts.live_calls:
        if facts.qualified(call.func) in libraries.RUNNING_FUNCTIONS and call.args:
            yield from _of_command(facts, call, _words_of(call.args[0].value))


def _words_of(command: cst.BaseExpression) -> str:
    if isinstance(command, cst.List | cst.Tuple):
        return " ".join(_words_of(element.value) for element in command.elements)
    if isinstance(command, cst.FormattedString):
        return "".join(cst_nodes.code_of(part) for part in command.parts)
    text = command.value if isinstance(command, cst.Integer) else cst_nodes.string_value(command)
    return text if text is not None else f"{{{cst_nodes.code_of(command)}}}"


def _of_command(facts: Facts, call: cst.Call, text: str) -> Iterator[Training]:
    def named(found: re.Match[str]) -> str:
        bindings = facts.bindings(found[1] or found[2])
        made = [b.value for b in bindings if b.value and b.order < facts.order(call)]
        return _words_of(made[-1]) if made and not isinstance(made[-1], cst.Call) else found[0]

    for part in re.split(r"&&|\|\||[;|\n]", re.sub(r"\\\s*\n", " ", _NAMED.sub(named, text))):
        words = _plain_words(part)
        if not _is_training(words):
            continue
        line = " ".join(words)
        first = line if len(line) < 60 else f"{line[:57]}..."
        yield Training(call, f"what trains here is the command `{first}`: {_on_two(words)}")
        return


def _plain_words(part: str) -> list[str]:
    """Return the words of a command, without what only sets its environment."""
    try:
        words = shlex.split(part, comments=True)
    except ValueError:  # an open quote
        words = part.split()
    while words and re.match(r"\w+=|(?:sudo|nohup|time|env|exec|uv|run|!)\Z", words[0]):
        del words[0]
    return words


def _is_training(words: list[str]) -> bool:
    program = words[0].rpartition("/")[2] if words else ""
    if not words or program in _FILES:
        return False
    if _PYTHON.match(words[0]):
        scripts = [word for word in words[1:] if word.endswith(".py")]
        named = [word.rpartition("/")[2] for word in (*_module(words), *scripts[:1])]
        after = [" ".join(pair) for pair in pairwise(words) if pair[0].endswith(tuple(named[:1]))]
        trains = any(_TRAINS.search(word) or word.startswith("torch.distributed.") for word in named)
        return trains or any(map(_SUBCOMMAND.fullmatch, after))
    if any(" ".join(words[:2]).startswith(start) for start, _ in COMMANDS[:6]) or program in ("bash", "sh"):
        words = [*takewhile(lambda word: word[:1] != ">", words)]
        last = next((n for n, word in enumerate(words) if word.endswith((".py", ".sh"))), len(words))
        own = [*words[1 : last + 1], *(word for word in words[last + 1 :] if word[:2] == "--")]
        return any(map(_TRAINS.search, own)) or bool(_SUBCOMMAND.fullmatch(" ".join(words[last : last + 2])))
    commands = takewhile(re.compile(r"[^-./][^./]*").fullmatch, words[1:3])
    return any(map(_TRAINS.search, (program, *commands)))


def _module(words: list[str]) -> list[str]:
    """Return the module of ``python -m module``, if there is one."""
    return words[words.index("-m") + 1 :][:1] if "-m" in words else []


def _on_two(words: list[str]) -> str:
    """Return how a command trains on two GPUs."""
    line = " ".join([words[0].rpartition("/")[2], *words[1:]])
    if told := re.search(r"--(?:nproc.per.node|num_processes|num_gpus)[ =]([2-9]|\d\d+)(?!\S)", line):
        return f"{STARTS}, and trains in {told[1]} as it is"
    if _PYTHON.match(words[0]):
        for name in _module(words):
            if own := next((f for f in FRAMEWORKS if _fits(f"{name}.", f.origins)), None):
                return own.advice
            if name.startswith("torch.distributed"):
                return COMMANDS[0][1]
        shown = " ".join([_TORCHRUN, *(word for word in words[1:] if word != "-u")])
        does = "starts it on two GPUs, if its code trains with a Trainer of Transformers, with Accelerate or with DDP"
        return f"`{shown if len(shown) < 80 else shown[:77] + '...'}` {does}; nb2ddp converts what stands in cells"
    unknown = "nb2ddp converts what stands in cells; for several GPUs see its own documentation"
    return next((advice for start, advice in COMMANDS if line.startswith(start)), unknown)
