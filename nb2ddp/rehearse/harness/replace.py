"""Replace what a rehearsal cannot or must not do, in the training and around it, and note each replacement."""

from __future__ import annotations

import builtins
import contextlib
import functools
import os
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

from nb2ddp.rehearse.harness import notes
from nb2ddp.rehearse.harness.gpus import NO_GPU
from nb2ddp.rehearse.harness.imports import Patch, around, patched
from nb2ddp.rehearse.harness.notes import PLAN, replaced

_NEW_TOKENS = 8
_WARMUP_STEPS = 1
_PACKED_LENGTH = 128
_GPU_EXPORTS = ("push_to_hub_gguf", "save_pretrained_torchao", "push_to_hub_openvino")
_REAL_MODEL = "exports need the real model"
_NO_UPLOAD = "a rehearsal uploads nothing"
_SHORT = "a rehearsal is short"
_NEEDS_GPU = "it needs a GPU"


def begin() -> None:
    """Patch shell commands, and provide the ``get_ipython`` that the notebook's own code may call."""
    around(subprocess, "run", functools.partial(_command, subprocess.CompletedProcess([], 0, "", "")))
    around(subprocess, "check_call", functools.partial(_command, 0))
    around(subprocess, "check_output", functools.partial(_command, b""))
    around(os, "system", functools.partial(_command, 0))
    builtins.get_ipython = _Shell  # type: ignore[attr-defined]
    builtins.display = lambda *values, **options: [*map(sys.displayhook, values)]  # type: ignore[attr-defined]
    if "script" in PLAN and "vllm" in Path(PLAN["script"]).read_text(encoding="utf-8"):
        around(builtins, "__import__", _import)


def _command(answer: Any, original: Callable[..., Any], command: Any, *others: Any, **options: Any) -> Any:
    if not notes.called_by_script(3) or not PLAN:
        return original(command, *others, **options)
    _no_command(" ".join(command) if isinstance(command, list | tuple) else str(command))
    return answer


def _no_command(command: str) -> None:
    line = command.strip().partition("\n")[0]
    shown = f"{line[:57]}..." if len(line) > 60 else line
    replaced(f"the command `{shown}`", "nothing", "a rehearsal starts no programs")


class _Shell:
    """Stand in for IPython's shell: shell lines are noted, and magics that matter here are run."""

    def system(self, command: str) -> None:
        _no_command(command)

    def getoutput(self, command: str) -> list[str]:
        _no_command(command)
        return []

    def run_line_magic(self, name: str, line: str) -> None:
        if name in ("env", "set_env"):
            key, _, value = line.partition("=") if "=" in line else line.partition(" ")
            os.environ[key.strip()] = value.strip()
        elif name == "cd":
            with contextlib.suppress(OSError):  # as the script goes on
                os.chdir(os.path.expanduser(line))

    def run_cell_magic(self, name: str, line: str, body: str) -> None:
        if name == "writefile":
            with open(line.split()[-1], "a" if "-a" in line.split() else "w", encoding="utf-8") as file:
                file.write(body)
        else:
            _no_command(body)


# ---- the training ------------------------------------------------------------------------------------------


_no_dropout = functools.partial(
    replaced, "dropout", "none", "one process and several draw other masks by nature"
)


def _without_dropout(torch: Any) -> None:
    """Switch dropout off: one process and several draw different masks, and could not be compared."""
    around(torch.nn.functional, "dropout", _dropout)
    around(torch.nn.functional, "scaled_dot_product_attention", _attention)


def _dropout(
    original: Callable[..., Any], value: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if training and p:
        _no_dropout()
    return value


def _attention(original: Callable[..., Any], *tensors: Any, **options: Any) -> Any:
    if options.get("dropout_p"):
        options["dropout_p"] = 0.0
        _no_dropout()
    return original(*tensors, **options)


def _arguments(original: Callable[..., Any], self: Any) -> None:
    steps = PLAN["steps"]
    if not 0 < self.max_steps <= steps:
        said = f"max_steps {self.max_steps}" if self.max_steps > 0 else f"{self.num_train_epochs} epochs"
        _set(self, "max_steps", steps, _SHORT, said)
    for name, is_wrong, value, why in _CHANGED:
        if (given := getattr(self, name, None)) and is_wrong(given):
            _set(self, name, value, why)
    if getattr(self, "packing", False):
        for name in ("max_length", "max_seq_length"):
            if (getattr(self, name, None) or 0) > _PACKED_LENGTH:
                _set(self, name, _PACKED_LENGTH, "else there are too few packed rows for all steps")
    self.report_to = "none"
    original(self)


def _set(arguments: Any, name: str, value: Any, why: str, what: str = "") -> None:
    given = getattr(arguments, name)
    replaced(what or f"{name} {getattr(given, 'value', given)}", f"{name} {value}", why)
    setattr(arguments, name, value)


# Of a Trainer's arguments: which value is changed, to what, and why.
_CHANGED: tuple[tuple[str, Callable[[Any], object], Any, str], ...] = (
    ("warmup_steps", lambda steps: steps > _WARMUP_STEPS, _WARMUP_STEPS, _SHORT),
    ("fp16", bool, False, "rounding would hide small differences"),
    ("bf16", bool, False, "rounding would hide small differences"),
    ("optim", lambda name: re.search("8bit|4bit|paged|bnb", str(name).lower()), "adamw_torch", _NEEDS_GPU),
    ("use_vllm", bool, False, _NEEDS_GPU),
    ("neftune_noise_alpha", bool, None, "it is random"),
    ("ddp_backend", lambda backend: backend == "nccl", "gloo", NO_GPU),
    ("push_to_hub", bool, False, _NO_UPLOAD),
)


def _generate(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    if (options.get("max_new_tokens") or _NEW_TOKENS + 1) > _NEW_TOKENS:
        options["max_new_tokens"] = _NEW_TOKENS
        options.pop("max_length", None)
        replaced("longer generation", f"{_NEW_TOKENS} new tokens", "a random model has nothing to say")
    return original(*arguments, **options)


def _grpo_trainer(original: Callable[..., Any], self: Any, *others: Any, **options: Any) -> None:
    functions = options.get("reward_funcs")
    if isinstance(functions, list):
        options["reward_funcs"] = [_rewarding(function) for function in functions]
    elif functions is not None:
        options["reward_funcs"] = _rewarding(functions)
    original(self, *others, **options)


def _rewarding(function: Any) -> Any:
    """Wrap a reward function: equal rewards within a group, which give no gradients, become unequal ones."""
    if not callable(function) or isinstance(function, type) or hasattr(function, "parameters"):
        return function  # a reward model, or its name

    @functools.wraps(function)
    def rewards(*arguments: Any, **options: Any) -> Any:
        given = function(*arguments, **options)
        completions = options.get("completions")
        if completions is None or not isinstance(given, list) or len(set(map(str, given))) > 1:
            return given
        replaced(f"equal rewards of {getattr(function, '__name__', function)}", "numbers made of the texts")
        return [zlib.crc32(str(completion).encode()) % 100 / 100 for completion in completions]

    return rewards


# ---- what notebooks say to vLLM ----------------------------------------------------------------------------
# The script alone gets a stand-in: TRL and Transformers ask whether vLLM is installed, and
# shall hear the truth.


def _import(
    original: Callable[..., Any], name: str, namespace: Any = None, *others: Any, **options: Any
) -> Any:
    try:
        return original(name, namespace, *others, **options)
    except ImportError:
        if name != "vllm" or not notes.beside_script((namespace or {}).get("__file__")):
            raise
    replaced("vLLM", "a stand-in", _NEEDS_GPU)
    return SimpleNamespace(SamplingParams=SimpleNamespace)


def _add_vllm(owner: Any) -> None:
    """Add the methods that Unsloth gives a model on a GPU for its vLLM engine."""
    for method in (fast_generate, load_lora, save_lora):
        if not hasattr(owner, method.__name__):
            setattr(owner, method.__name__, method if isinstance(owner, type) else MethodType(method, owner))


def fast_generate(self: Any, prompts: Any, *arguments: Any, **options: Any) -> list[Any]:
    """Return one word for each prompt."""
    replaced("fast_generate", "a word for each prompt", _NEEDS_GPU)
    asked = prompts if isinstance(prompts, list) else [prompts]
    return [SimpleNamespace(prompt=prompt, outputs=[SimpleNamespace(text="word")]) for prompt in asked]


def load_lora(self: Any, path: str, *arguments: Any, **options: Any) -> None:
    """Return nothing: `fast_generate` takes what this returns."""
    replaced(f"load_lora({path!r})", "nothing", _NEEDS_GPU)


def save_lora(self: Any, path: str, *arguments: Any, **options: Any) -> None:
    """Save the adapter where Unsloth saves it."""
    self.save_pretrained(path)


# ---- what leaves the process: downloads, exports, uploads --------------------------------------------------


def _reload(original: Callable[..., Any], self: Any) -> None:
    """Skip the download that ``Audio(URL)`` starts when it is created."""
    if getattr(self, "url", None):
        replaced(f"{type(self).__name__}({self.url})", "nothing", "nothing is downloaded")
    else:
        original(self)


def _record(name: str, why: str) -> Callable[..., Any]:
    def recorded(original: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        target = next((a for a in (*arguments, *options.values()) if isinstance(a, str)), "")
        replaced(f"{name}({target!r})", "a record of it", why)

    return recorded


def _no_exports(module: Any) -> None:
    for name in ("save_pretrained_merged", "push_to_hub_merged", "save_pretrained_gguf"):
        around(module, name, _record(name, _REAL_MODEL))
    around(module.FastCPUModel, "_attach", _attach)


def _attach(original: Callable[..., Any], model: Any) -> None:
    """Add the exports that Unsloth has on a GPU and its CPU backend lacks; they are only noted."""
    original(model)
    _add_vllm(model)
    for name in _GPU_EXPORTS:
        if not hasattr(model, name):
            setattr(model, name, functools.partial(_record(name, _REAL_MODEL), None))


def _no_logins(module: Any) -> None:
    """A login asks for a token, or asks the hub whether one is good; the token is not noted."""

    def recorded(original: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        replaced(f"{original.__name__}()", "nothing", _NO_UPLOAD)

    for name in ("login", "notebook_login", "interpreter_login"):
        around(module, name, recorded)


_upload = _record("push_to_hub", _NO_UPLOAD)

PATCHES: dict[str, Patch] = {
    "torch": _without_dropout,
    "trl.trainer.grpo_trainer": patched("GRPOTrainer.__init__", _grpo_trainer),
    "peft.peft_model": lambda module: _add_vllm(module.PeftModel),
    "IPython.core.display": patched("DisplayObject.reload", _reload),
    "transformers.training_args": patched("TrainingArguments.__post_init__", _arguments),
    "transformers.generation.utils": patched("GenerationMixin.generate", _generate),
    "huggingface_hub._login": _no_logins,
    "transformers.utils.hub": patched("PushToHubMixin.push_to_hub", _upload),
    "datasets.arrow_dataset": patched("Dataset.push_to_hub", _upload),
    "datasets.dataset_dict": patched("DatasetDict.push_to_hub", _upload),
    "unsloth_zoo.cpu.loader": _no_exports,
}
