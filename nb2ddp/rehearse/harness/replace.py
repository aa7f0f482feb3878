"""Replace what needs a GPU and what a rehearsal must not do, and note each replacement."""

from __future__ import annotations

import builtins
import functools
import os
import subprocess
import zlib
from collections.abc import Callable
from typing import Any

from nb2ddp.rehearse.harness import notes, vllm
from nb2ddp.rehearse.harness.imports import Patch, around
from nb2ddp.rehearse.harness.notes import PLAN, replaced

_NEW_TOKENS = 8
_WARMUP_STEPS = 1
_PACKED_LENGTH = 128
_EXPORTS = ("save_pretrained_merged", "push_to_hub_merged", "save_pretrained_gguf")
_GPU_EXPORTS = ("push_to_hub_gguf", "save_pretrained_torchao", "push_to_hub_openvino")
_REAL_MODEL = "exports need the real model"


def begin() -> None:
    """Patch shell commands, and provide the ``get_ipython`` that the notebook's own code may call."""
    around(subprocess, "run", functools.partial(_command, subprocess.CompletedProcess([], 0, "", "")))
    around(subprocess, "check_call", functools.partial(_command, 0))
    around(subprocess, "check_output", functools.partial(_command, b""))
    around(os, "system", functools.partial(_command, 0))
    builtins.get_ipython = _Shell  # type: ignore[attr-defined]
    builtins.display = lambda *values, **options: print(*values)  # type: ignore[attr-defined]


def _command(answer: Any, original: Callable[..., Any], command: Any, *others: Any, **options: Any) -> Any:
    if not notes.called_by_script(3) or not PLAN:
        return original(command, *others, **options)
    replaced(f"the command {_short(command)}", "nothing", "a rehearsal starts no programs")
    return answer


def _short(command: Any) -> str:
    text = " ".join(command) if isinstance(command, list | tuple) else str(command)
    line = text.strip().splitlines()[0] if text.strip() else text
    return f"`{line[:57]}...`" if len(line) > 60 else f"`{line}`"


class _Shell:
    """Stand in for IPython's shell: shell lines are noted, and magics that matter here are run."""

    def system(self, command: str) -> None:
        replaced(f"the command {_short(command)}", "nothing", "a rehearsal starts no programs")

    def getoutput(self, command: str) -> list[str]:
        self.system(command)
        return []

    def run_line_magic(self, name: str, line: str) -> None:
        if name in ("env", "set_env"):
            key, _, value = line.partition("=") if "=" in line else line.partition(" ")
            os.environ[key.strip()] = value.strip()
        elif name == "cd":
            os.chdir(os.path.expanduser(line))

    def run_cell_magic(self, name: str, line: str, body: str) -> None:
        if name == "writefile":
            with open(line.split()[-1], "a" if "-a" in line.split() else "w", encoding="utf-8") as file:
                file.write(body)
        else:
            self.system(body)


# ---------------------------------------------------------------------------------------------------------
# The GPU


def _without_gpu(torch: Any) -> None:
    """Keep tensors that are sent to a GPU on the CPU, and answer questions about the GPU."""
    if torch.cuda.is_available():
        return
    for owner in (torch.Tensor, torch.nn.Module):
        around(owner, "to", _on_cpu)
        around(owner, "cuda", lambda original, self, *others, **options: self)
    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats", "set_device", "ipc_collect"):
        around(torch.cuda, name, lambda original, *arguments, **options: None)
    for name in ("max_memory_reserved", "max_memory_allocated", "memory_reserved", "memory_allocated"):
        around(torch.cuda, name, lambda original, *arguments, **options: 0)
    around(torch.cuda, "get_device_properties", _properties)
    around(torch.cuda, "get_device_name", lambda original, *arguments, **options: "no GPU")
    around(torch.cuda, "get_device_capability", lambda original, *arguments, **options: (7, 5))


def _on_cpu(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    def moved(value: Any) -> Any:
        if not is_gpu(value):
            return value
        replaced("the device cuda", "the CPU", "there is no GPU here")
        return "cpu"

    return original(*map(moved, arguments), **{name: moved(value) for name, value in options.items()})


def is_gpu(value: Any) -> bool:
    """Return whether a device is a GPU: "cuda:0", ``torch.device("cuda")``, or a number alone."""
    if isinstance(value, str):
        return value.startswith("cuda")
    if isinstance(value, int):
        return not isinstance(value, bool)
    return type(value).__name__ == "device" and value.type == "cuda"


def _properties(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    from types import SimpleNamespace

    replaced("the properties of the GPU", "those of no GPU", "there is no GPU here")
    return SimpleNamespace(
        name="no GPU", total_memory=15 << 30, major=7, minor=5, multi_processor_count=1, uuid="none"
    )


# ---------------------------------------------------------------------------------------------------------
# The training


def _without_dropout(torch: Any) -> None:
    """Switch dropout off: one process and several draw different masks, and could not be compared."""
    around(torch.nn.functional, "dropout", _dropout)
    around(torch.nn.functional, "scaled_dot_product_attention", _attention)


def _dropout(
    original: Callable[..., Any], value: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if training and p:
        replaced("dropout", "none", "one process and several draw other masks by nature")
    return value


def _attention(original: Callable[..., Any], *tensors: Any, **options: Any) -> Any:
    if options.get("dropout_p"):
        options["dropout_p"] = 0.0
        replaced("dropout", "none", "one process and several draw other masks by nature")
    return original(*tensors, **options)


def _shorter_training(module: Any) -> None:
    around(module.TrainingArguments, "__post_init__", _arguments)


def _arguments(original: Callable[..., Any], self: Any) -> None:
    steps = PLAN["steps"]
    if not 0 < self.max_steps <= steps:
        said = f"max_steps {self.max_steps}" if self.max_steps > 0 else f"{self.num_train_epochs} epochs"
        _set(self, "max_steps", steps, said)
    if (getattr(self, "warmup_steps", 0) or 0) > _WARMUP_STEPS:
        _set(self, "warmup_steps", _WARMUP_STEPS, why="a rehearsal is short")
    for name in ("fp16", "bf16"):
        if getattr(self, name, False):
            setattr(self, name, False)
            replaced(f"{name} arithmetic", "32 bit", "rounding would hide small differences")
    optimizer = str(getattr(self.optim, "value", self.optim))
    if any(word in optimizer for word in ("8bit", "4bit", "paged", "bnb")):
        _set(self, "optim", "adamw_torch", f"the optimizer {optimizer}", "it needs a GPU")
    if getattr(self, "packing", False):  # else there are too few packed rows for all steps
        for name in ("max_length", "max_seq_length"):
            if (getattr(self, name, None) or 0) > _PACKED_LENGTH:
                _set(self, name, _PACKED_LENGTH, why="few rows are packed")
    if getattr(self, "use_vllm", False):
        _set(self, "use_vllm", False, "vLLM", "it needs a GPU")
    if getattr(self, "neftune_noise_alpha", None):
        _set(self, "neftune_noise_alpha", None, "NEFTune's noise", "it is random")
    if getattr(self, "ddp_backend", None) == "nccl":
        _set(self, "ddp_backend", "gloo", why="there is no GPU here")
    if self.push_to_hub:
        _set(self, "push_to_hub", False, why="a rehearsal uploads nothing")
    self.report_to = "none"
    original(self)


def _set(self: Any, name: str, value: Any, what: str = "", why: str = "") -> None:
    replaced(what or f"{name} {getattr(self, name)}", f"{name} {value}", why)
    setattr(self, name, value)


def _shorter_generation(module: Any) -> None:
    around(module.GenerationMixin, "generate", _generate)


def _generate(original: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    if (options.get("max_new_tokens") or _NEW_TOKENS + 1) > _NEW_TOKENS:
        options["max_new_tokens"] = _NEW_TOKENS
        options.pop("max_length", None)
        replaced("longer generation", f"{_NEW_TOKENS} new tokens", "a random model has nothing to say")
    return original(*arguments, **options)


def _rewards_that_differ(module: Any) -> None:
    around(module.GRPOTrainer, "__init__", _grpo_trainer)


def _grpo_trainer(original: Callable[..., Any], self: Any, *others: Any, **options: Any) -> None:
    functions = options.get("reward_funcs")
    if isinstance(functions, list):
        options["reward_funcs"] = [_rewarding(one) if callable(one) else one for one in functions]
    elif callable(functions):
        options["reward_funcs"] = _rewarding(functions)
    original(self, *others, **options)


def _rewarding(function: Any) -> Any:
    """Wrap a reward function: equal rewards within a group, which give no gradients, become unequal ones."""
    if isinstance(function, type) or hasattr(function, "parameters"):  # a reward model
        return function

    @functools.wraps(function)
    def rewards(*arguments: Any, **options: Any) -> Any:
        given = function(*arguments, **options)
        completions = options.get("completions")
        if completions is None or not isinstance(given, list) or len(set(map(str, given))) > 1:
            return given
        replaced(f"equal rewards of {getattr(function, '__name__', function)}", "numbers made of the texts")
        return [zlib.crc32(str(completion).encode()) % 100 / 100 for completion in completions]

    return rewards


# ---------------------------------------------------------------------------------------------------------
# What is shown


def _no_media(module: Any) -> None:
    around(module.DisplayObject, "reload", _reload)


def _reload(original: Callable[..., Any], self: Any) -> None:
    """Skip the download that ``Audio(URL)`` starts when it is created."""
    if getattr(self, "url", None):
        replaced(f"{type(self).__name__}({self.url})", "nothing", "nothing is downloaded")
    else:
        original(self)


# ---------------------------------------------------------------------------------------------------------
# Exports and uploads


def _record(name: str, why: str) -> Callable[..., Any]:
    def recorded(original: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        target = next((a for a in (*arguments, *options.values()) if isinstance(a, str)), "")
        notes.note("export", name=name, target=target, line=notes.line_of_script())
        replaced(f"{name}({target!r})", "a record of it", why)

    return recorded


def _no_exports(module: Any) -> None:
    for name in _EXPORTS:
        around(module, name, _record(name, _REAL_MODEL))
    around(module.FastCPUModel, "_attach", _attach)


def _attach(original: Callable[..., Any], model: Any) -> None:
    """Add the exports that Unsloth has on a GPU and its CPU backend lacks; they are only noted."""
    original(model)
    vllm.attach(model)
    for name in _GPU_EXPORTS:
        record = functools.partial(_record(name, _REAL_MODEL), None)
        if not hasattr(model, name):
            setattr(model, name, record)


def _no_uploads(owner: str, *names: str) -> Patch:
    def patch(module: Any) -> None:
        target = getattr(module, owner) if owner else module
        for name in names:
            around(target, name, _record(name, "a rehearsal uploads nothing"))

    return patch


def _no_logins(module: Any) -> None:
    """A login asks for a token, or asks the hub whether one is good; the token is not noted."""

    def recorded(name: str, original: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        replaced(f"{name}()", "nothing", "a rehearsal uploads nothing")

    for name in ("login", "notebook_login", "interpreter_login"):
        around(module, name, functools.partial(recorded, name))


def _patch_torch(torch: Any) -> None:
    _without_gpu(torch)
    _without_dropout(torch)


PATCHES: dict[str, Patch] = {
    "torch": _patch_torch,
    "trl.trainer.grpo_trainer": _rewards_that_differ,
    "IPython.core.display": _no_media,
    "transformers.training_args": _shorter_training,
    "transformers.generation.utils": _shorter_generation,
    "huggingface_hub._login": _no_logins,
    "transformers.utils.hub": _no_uploads("PushToHubMixin", "push_to_hub"),
    "datasets.arrow_dataset": _no_uploads("Dataset", "push_to_hub"),
    "datasets.dataset_dict": _no_uploads("DatasetDict", "push_to_hub"),
    "unsloth_zoo.cpu.loader": _no_exports,
}
