"""Tiny random models in place of those that would have to be downloaded, of the same architecture family."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from nb2ddp.rehearse.harness import notes, watch
from nb2ddp.rehearse.harness.data import sentence
from nb2ddp.rehearse.harness.imports import Patch, around
from nb2ddp.rehearse.harness.notes import PLAN, replaced

# The architecture by a word in the name of a model, the first that fits.
FAMILIES = (
    ("r1-distill-llama", "llama"),
    ("r1-distill-qwen", "qwen2"),
    ("qwen3.*a3b", "qwen3_moe"),
    ("qwen-?3", "qwen3"),
    ("qwen|qwq", "qwen2"),
    ("mixtral", "mixtral"),
    ("mistral|zephyr|magistral|ministral|devstral|codestral", "mistral"),
    ("gemma-?3", "gemma3_text"),
    ("gemma-?2", "gemma2"),
    ("gemma", "gemma"),
    ("phi-?4", "llama"),  # Unsloth's own are
    ("phi-?3", "phi3"),
    ("granite", "granite"),
    ("falcon-?h1", "falcon_h1"),
    ("lfm-?2", "lfm2"),
    ("ernie", "ernie4_5"),
    ("glm-?4", "glm4"),
    ("gpt-?oss", "gpt_oss"),
    ("olmo-?3", "olmo3"),
    ("olmo-?2", "olmo2"),
    ("bloom", "bloom"),
    ("opt-", "opt"),
    ("gpt-?2", "gpt2"),
    ("distilbert", "distilbert"),
    ("roberta", "roberta"),
    ("bert", "bert"),
    ("mt0|mt5", "mt5"),
    ("t5", "t5"),
)
_OTHER = "llama"
_SIZES: dict[str, Any] = {
    "hidden_size": 64,
    "d_model": 64,
    "n_embd": 64,
    "dim": 64,
    "word_embed_proj_dim": 64,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "shared_intermediate_size": 64,
    "ffn_dim": 128,
    "d_ff": 128,
    "hidden_dim": 128,
    "num_hidden_layers": 2,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "n_layer": 2,
    "n_layers": 2,
    "num_attention_heads": 2,
    "num_heads": 2,
    "n_head": 2,
    "n_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "d_kv": 32,
    "num_experts": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "mamba_d_ssm": 128,
    "mamba_n_heads": 4,
    "mamba_d_head": 32,
    "mamba_d_state": 16,
    "sliding_window": 64,
    "query_pre_attn_scalar": 32,
    "initializer_range": 0.1,  # random, yet with losses that tell one sample from another
}
_SPECIAL = (
    "<unk> <s> </s> <pad> <bos> <eos> <mask> [CLS] [SEP] [MASK] [PAD] <|begin_of_text|> <|end_of_text|> "
    "<|eot_id|> <|start_header_id|> <|end_header_id|> <|finetune_right_pad_id|> <|im_start|> <|im_end|> "
    "<|endoftext|> <start_of_turn> <end_of_turn> [INST] [/INST] <|system|> <|user|> <|assistant|> <|end|> "
    "<think> </think> <|start|> <|message|> <|channel|> <|return|> <|start_of_role|> <|end_of_role|> "
    "<|startoftext|> <|vision_pad|>"
).split()
_ENDS = {
    "llama": ("<|begin_of_text|>", "<|eot_id|>"),
    "gemma": ("<bos>", "<eos>"),
    "mistral": ("<s>", "</s>"),
}
_TEMPLATE = (
    "{{%- for message in messages %}}"
    "{{%- set said = message['content'] %}}{{%- if said is not string %}}"
    "{{%- set said = (said or []) | selectattr('text', 'defined') | map(attribute='text') | join %}}"
    "{{%- endif %}}"
    "{{%- set text = said %}}"
    "{{%- if message['role'] == 'assistant' %}}{{{{ {answer} + text + {end} }}}}"
    "{{%- else %}}{{{{ {ask} + text + {end} }}}}{{%- endif %}}"
    "{{%- endfor %}}{{%- if add_generation_prompt %}}{{{{ {answer} }}}}{{%- endif %}}"
)
_VOCABULARY = 1200
# Unsloth's CPU backend hands options that it does not know on to the model, which does not know them either.
_GPU_OPTIONS = frozenset(
    "qat_scheme float8_training float32_mixed_precision unsloth_force_compile fullgraph return_logits "
    "text_only auto_model target_parameters disable_log_stats device_map_planner_kwargs rope_scaling".split()
)
_HUB_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?")
_QUANTISED = re.compile(r"-(?:unsloth-)?bnb-4bit$|-4bit$", re.IGNORECASE)
_nested = threading.local()


def family(name: str) -> str:
    """Return the model type that a name implies: "qwen3" for "unsloth/Qwen3-14B"."""
    base = name.lower().rpartition("/")[2]
    return next((kind for pattern, kind in FAMILIES if re.search(pattern, base)), _OTHER)


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
        model = _model_of(transformers, config).to(torch.float32)
        part = folder.with_name(f"{folder.name}.part")
        model.save_pretrained(part)
        tokenizer.save_pretrained(part)
    random.setstate(state)
    part.rename(folder)  # complete, or not there


def _model_of(transformers: Any, config: Any) -> Any:
    for kind in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModel"):
        with contextlib.suppress(ValueError):
            return getattr(transformers, kind).from_config(config)
    raise ValueError(f"no model can be made of a {config.model_type} configuration")


def _config(name: str, tokenizer: Any) -> Any:
    import transformers

    kind = family(name)
    if kind not in transformers.CONFIG_MAPPING:  # an older Transformers
        kind = _OTHER
    blank = transformers.AutoConfig.for_model(kind)
    sizes = {key: value for key, value in _SIZES.items() if getattr(blank, key, None) is not None}
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
        vocab_size=_VOCABULARY,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator([sentence(rng) for _ in range(400)], trainer)
    kind = family(name)
    start, end = next((e for k, e in _ENDS.items() if kind.startswith(k)), ("<|im_start|>", "<|im_end|>"))
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
    tokenizer.chat_template = _TEMPLATE.format(ask=repr(ask), answer=repr(answer), end=repr(f"{end}\n"))
    return tokenizer


# ---------------------------------------------------------------------------------------------------------
# Where models are loaded


@contextlib.contextmanager
def _inside() -> Iterator[None]:
    """Mark loads within a load: they are part of it."""
    _nested.depth = _depth() + 1
    try:
        yield
    finally:
        _nested.depth -= 1


def _depth() -> int:
    depth: int = getattr(_nested, "depth", 0)
    return depth


def _unsloth_model(original: Callable[..., Any], model_name: Any = None, *others: Any, **options: Any) -> Any:
    if model_name is None:
        model_name = options.pop("model_name", "unsloth/Llama-3.2-1B-Instruct")
    if _depth():
        return original(model_name, *others, **options)
    import torch

    for name in ("load_in_4bit", "load_in_8bit", "load_in_fp8", "fast_inference"):
        if options.get(name, name == "load_in_4bit"):
            replaced(name, f"{name}=False", "it needs a GPU")
        options.pop(name, None)
    options["load_in_4bit"] = False  # the others are off where they are not given
    for name in _GPU_OPTIONS & options.keys():
        if options.pop(name):
            replaced(name, f"no {name}", "only Unsloth on a GPU has it")
    if len(others) < 2:  # model_name, max_seq_length, dtype
        options["dtype"] = torch.float32
    for name in ("token", "revision", "quantization_config", "attn_implementation"):
        options.pop(name, None)
    asked = options.pop("device_map", None)
    with _inside():
        made = original(local(model_name), *others, **options)
    watch.loaded(made[0] if isinstance(made, tuple) else made, model_name, asked)
    return made


def _transformers_model(original: Callable[..., Any], cls: Any, *arguments: Any, **options: Any) -> Any:
    if _depth():
        return original(cls, *arguments, **options)
    import torch

    name = arguments[0] if arguments else options.pop("pretrained_model_name_or_path", None)
    for option in ("quantization_config", "load_in_4bit", "load_in_8bit"):
        if options.pop(option, None):
            replaced(option, "no quantisation", "it needs a GPU")
    if options.pop("attn_implementation", "").startswith("flash"):
        replaced("FlashAttention", "PyTorch's own", "it needs a GPU")
    for option in ("dtype", "torch_dtype"):
        if options.get(option) not in (None, torch.float32):
            replaced(f"{option} {options[option]}", "32 bit", "a CPU trains in 32 bit")
            options[option] = torch.float32
    for option in ("token", "revision", "max_memory"):
        options.pop(option, None)
    asked = options.pop("device_map", None)
    with _inside():
        made = original(cls, local(name), *arguments[1:], **options)
    watch.loaded(made[0] if isinstance(made, tuple) else made, name, asked)
    return made


def _by_name(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """Load a tokenizer or a configuration; the first argument is the class where there is one."""
    if _depth():
        return original(*arguments, **options)
    options.pop("token", None)
    options.pop("revision", None)
    if "pretrained_model_name_or_path" in options:
        options["pretrained_model_name_or_path"] = local(options["pretrained_model_name_or_path"])
    with _inside():
        return original(
            *(local(a) if i == len(arguments[:2]) - 1 else a for i, a in enumerate(arguments)), **options
        )


def _without_patches(module: Any) -> None:
    """Add Unsloth's functions that patch TRL, which its CPU backend lacks, as no-ops."""
    for name in ("PatchDPOTrainer", "PatchKTOTrainer", "PatchFastRL"):
        if not hasattr(module, name):
            setattr(module, name, lambda *arguments, **options: None)


def _around_from_pretrained(wrapper: Callable[..., Any], *owners: str) -> Patch:
    def patch(module: Any) -> None:
        for owner in owners:
            if hasattr(module, owner) and "from_pretrained" in vars(getattr(module, owner)):
                around(getattr(module, owner), "from_pretrained", wrapper)

    return patch


def _seeded_numpy(numpy: Any) -> None:
    numpy.random.seed(SEED)


def _seeded_torch(torch: Any) -> None:
    torch.manual_seed(SEED)


SEED = 3407 + notes.RANK
"""Random numbers start the same in the notebook and on rank 0, and not on the others: what depends on them
without a seed of its own is found."""

PATCHES: dict[str, Patch] = {
    "numpy": _seeded_numpy,
    "torch": _seeded_torch,
    "transformers.modeling_utils": _around_from_pretrained(_transformers_model, "PreTrainedModel"),
    "transformers.models.auto.auto_factory": _around_from_pretrained(
        _transformers_model, "_BaseAutoModelClass"
    ),
    "transformers.models.auto.tokenization_auto": _around_from_pretrained(_by_name, "AutoTokenizer"),
    "transformers.models.auto.configuration_auto": _around_from_pretrained(_by_name, "AutoConfig"),
    "transformers.tokenization_utils_base": _around_from_pretrained(_by_name, "PreTrainedTokenizerBase"),
    "unsloth": _without_patches,
    "unsloth_zoo.cpu.loader": _around_from_pretrained(_unsloth_model, "FastCPUModel"),
}
