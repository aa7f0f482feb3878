"""Tiny random models in place of those that would have to be downloaded, of the same architecture family."""

from __future__ import annotations

import contextlib
import contextvars
import fcntl
import functools
import os
import random
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nb2ddp.rehearse.harness import notes, watch
from nb2ddp.rehearse.harness.data import sentence
from nb2ddp.rehearse.harness.imports import Patch, around, patched
from nb2ddp.rehearse.harness.notes import PLAN, replaced

_TINY = tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))
_NEEDS_GPU = "it needs a GPU"
_HUB_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")
_QUANTISED = re.compile(r"-(?:unsloth-)?bnb-4bit$|-4bit$", re.IGNORECASE)
_loading = contextvars.ContextVar("_loading", default=False)


def family(name: str) -> str:
    """Return the model type that a name implies: "qwen3" for "unsloth/Qwen3-14B"."""
    base = name.lower().rpartition("/")[2]
    kinds: dict[str, str] = _TINY["families"]
    return next((kind for pattern, kind in kinds.items() if re.search(pattern, base)), _TINY["other"])


def local(name: Any) -> Any:
    """Return a folder with a tiny model for the name of one on the hub, anything else as it is."""
    if not isinstance(name, str) or os.path.exists(name) or not _HUB_NAME.fullmatch(name):
        return name
    # Unsloth takes a name like this for that of a quantised model, a folder's too
    folder = Path(PLAN["models"]) / _QUANTISED.sub("", name).replace("/", "--")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several runs, and their ranks, may want the same
        if not folder.exists():
            _make(name, folder)
    replaced(f"the model {name}", f"a random {family(name)} of 2 layers", "nothing is downloaded")
    return str(folder)


def _make(name: str, folder: Path) -> None:
    import torch
    import transformers

    state = random.getstate()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        tokenizer = _tokenizer(name)
        config = _config(name, tokenizer)
        for kind in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModel"):
            with contextlib.suppress(ValueError):  # no such class for this configuration
                model = getattr(transformers, kind).from_config(config)
                break
        part = folder.with_name(f"{folder.name}.part")
        model.to(torch.float32).save_pretrained(part)
        tokenizer.save_pretrained(part)
    random.setstate(state)
    part.rename(folder)  # complete, or not there


def _config(name: str, tokenizer: Any) -> Any:
    import transformers

    kind = family(name)
    if kind not in transformers.CONFIG_MAPPING:  # an older Transformers
        kind = _TINY["other"]
    blank = transformers.AutoConfig.for_model(kind)
    sizes = {key: value for key, value in _TINY["sizes"].items() if getattr(blank, key, None) is not None}
    known = blank.to_dict()
    if known.get("layer_types"):
        sizes["layer_types"] = known["layer_types"][-2:]
    if known.get("sliding_window") is None:
        sizes.pop("sliding_window", None)
    ids = {f"{role}_token_id": getattr(tokenizer, f"{role}_token_id") for role in ("bos", "eos", "pad")}
    length = {"max_position_embeddings": 2048} if "max_position_embeddings" in known else {}
    config = transformers.AutoConfig.for_model(kind, **sizes, **ids, **length, vocab_size=len(tokenizer))
    if "layer_types" in known and not known["layer_types"] and getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:2]
    return config


def _tokenizer(name: str) -> Any:
    """Return the model's own tokenizer from the local cache, else a small one with common special tokens."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    with contextlib.suppress(Exception), _inside():
        return transformers.AutoTokenizer.from_pretrained(name, local_files_only=True)
    rng = random.Random(0)
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=_TINY["vocabulary"],
        special_tokens=_TINY["special_tokens"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([sentence(rng) for _ in range(400)], trainer)
    ends = _TINY["ends"]
    start, end = next((ends[kind] for kind in ends if family(name).startswith(kind)), ends["other"])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=start,
        eos_token=end,
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
        cls_token="[CLS]",
        sep_token="[SEP]",
        padding_side="right",
        model_max_length=2048,
        model_input_names=["input_ids", "attention_mask"],
    )
    ask, answer = PLAN["markers"] or (f"{start}user\n", f"{start}assistant\n")
    tokenizer.chat_template = _TINY["template"].strip()
    for name, text in {"ASK": ask, "ANSWER": answer, "END": f"{end}\n"}.items():
        tokenizer.chat_template = tokenizer.chat_template.replace(name, repr(text))
    return tokenizer


# ---- where models are loaded -------------------------------------------------------------------------------


@contextlib.contextmanager
def _inside() -> Iterator[None]:
    """Mark loads within a load: they are part of it."""
    before = _loading.set(True)
    try:
        yield
    finally:
        _loading.reset(before)


def _drop(options: dict[str, Any], *names: str) -> None:
    for name in names:
        options.pop(name, None)


def _unsloth_model(original: Callable[..., Any], model_name: Any = None, *others: Any, **options: Any) -> Any:
    import torch

    if model_name is None:
        model_name = options.pop("model_name", "unsloth/Llama-3.2-1B-Instruct")
    for name in ("load_in_4bit", "load_in_8bit", "load_in_fp8", "fast_inference"):
        if options.pop(name, name == "load_in_4bit"):
            replaced(name, f"{name}=False", _NEEDS_GPU)
    options["load_in_4bit"] = False  # the others are off where they are not given
    for name in _TINY["gpu_options"]:
        if options.pop(name, None):
            replaced(name, f"no {name}", "only Unsloth on a GPU has it")
    if len(others) < 2:  # model_name, max_seq_length, dtype
        options["dtype"] = torch.float32
    _drop(options, "token", "revision", "quantization_config", "attn_implementation")
    asked = options.pop("device_map", None)
    with _inside():
        made = original(local(model_name), *others, **options)
    watch.loaded(made, model_name, asked)
    return made


def _transformers_model(original: Callable[..., Any], cls: Any, *arguments: Any, **options: Any) -> Any:
    import torch

    name = arguments[0] if arguments else options.pop("pretrained_model_name_or_path", None)
    for option in ("quantization_config", "load_in_4bit", "load_in_8bit"):
        if options.pop(option, None):
            replaced(option, "no quantisation", _NEEDS_GPU)
    if options.pop("attn_implementation", "").startswith("flash"):
        replaced("FlashAttention", "PyTorch's own", _NEEDS_GPU)
    for option in ("dtype", "torch_dtype"):
        if options.get(option) not in (None, torch.float32):
            replaced(f"{option} {options[option]}", "32 bit", "a CPU trains in 32 bit")
            options[option] = torch.float32
    _drop(options, "token", "revision", "max_memory")
    asked = options.pop("device_map", None)
    with _inside():
        made = original(cls, local(name), *arguments[1:], **options)
    watch.loaded(made, name, asked)
    return made


def _by_name(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Load a tokenizer or a configuration; the first argument is the class where there is one."""
    _drop(options, "token", "revision")
    if "pretrained_model_name_or_path" in options:
        options["pretrained_model_name_or_path"] = local(options["pretrained_model_name_or_path"])
    elif arguments:
        place = len(arguments[:2]) - 1
        arguments = (*arguments[:place], local(arguments[place]), *arguments[place + 1 :])
    with _inside():
        return original(*arguments, **options)


def _seed_numpy(numpy: Any) -> None:
    """Seed what draws; a generator that nobody seeds, too, for the runtime makes it the same on all ranks."""
    numpy.random.seed(notes.SEED)
    if not PLAN.get("handmade"):
        around(numpy.random, "default_rng", lambda make, seed=None: make(3407 if seed is None else seed))


def _without_patches(module: Any) -> None:
    """Add Unsloth's functions that patch TRL, which its CPU backend lacks, as no-ops."""
    for name in ("PatchDPOTrainer", "PatchKTOTrainer", "PatchFastRL"):
        if not hasattr(module, name):
            setattr(module, name, lambda *arguments, **options: None)


def _loads(wrapper: Callable[..., Any], owner: str) -> Patch:
    """Return the patch of a class whose ``from_pretrained`` loads; within another load it does what it did."""

    def load(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return (original if _loading.get() else functools.partial(wrapper, original))(*arguments, **options)

    return patched(f"{owner}.from_pretrained", load)


PATCHES: dict[str, Patch] = {
    "numpy": _seed_numpy,
    "torch": lambda torch: torch.manual_seed(notes.SEED),
    "transformers.modeling_utils": _loads(_transformers_model, "PreTrainedModel"),
    "transformers.models.auto.auto_factory": _loads(_transformers_model, "_BaseAutoModelClass"),
    "transformers.models.auto.tokenization_auto": _loads(_by_name, "AutoTokenizer"),
    "transformers.models.auto.configuration_auto": _loads(_by_name, "AutoConfig"),
    "transformers.tokenization_utils_base": _loads(_by_name, "PreTrainedTokenizerBase"),
    "unsloth": _without_patches,
    "unsloth_zoo.cpu.loader": _loads(_unsloth_model, "FastCPUModel"),
}
