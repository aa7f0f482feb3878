"""What notebooks say to vLLM, answered without it: its sampling parameters, and text from its engine.

Only the script itself gets the stand-in. TRL and Transformers ask whether vLLM is installed, and shall
hear the truth.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from types import MethodType, SimpleNamespace
from typing import Any

from nb2ddp.rehearse.harness import notes
from nb2ddp.rehearse.harness.imports import Patch, around
from nb2ddp.rehearse.harness.notes import PLAN, replaced

_WHY = "it needs a GPU"


def begin() -> None:
    """Answer the script's ``import vllm``, where it has one."""
    if "script" in PLAN and "vllm" in Path(PLAN["script"]).read_text(encoding="utf-8"):
        around(builtins, "__import__", _import)


def _import(
    original: Callable[..., Any], name: str, namespace: Any = None, *others: Any, **options: Any
) -> Any:
    try:
        return original(name, namespace, *others, **options)
    except ImportError:
        if name != "vllm" or not notes.beside_script((namespace or {}).get("__file__")):
            raise
    replaced("vLLM", "a stand-in", _WHY)
    return SimpleNamespace(SamplingParams=SimpleNamespace)


def attach(owner: Any) -> None:
    """Add the methods that Unsloth gives a model on a GPU for its vLLM engine."""
    for method in (fast_generate, load_lora, save_lora):
        if not hasattr(owner, method.__name__):
            setattr(owner, method.__name__, method if isinstance(owner, type) else MethodType(method, owner))


def fast_generate(self: Any, prompts: Any, *arguments: Any, **options: Any) -> list[Any]:
    """Return one word for each prompt."""
    replaced("fast_generate", "a word for each prompt", _WHY)
    asked = prompts if isinstance(prompts, list) else [prompts]
    return [SimpleNamespace(prompt=prompt, outputs=[SimpleNamespace(text="word")]) for prompt in asked]


def load_lora(self: Any, path: str, *arguments: Any, **options: Any) -> None:
    """Return nothing: `fast_generate` takes what this returns."""
    replaced(f"load_lora({path!r})", "nothing", _WHY)


def save_lora(self: Any, path: str, *arguments: Any, **options: Any) -> None:
    """Save the adapter where Unsloth saves it."""
    self.save_pretrained(path)


PATCHES: dict[str, Patch] = {"peft.peft_model": lambda module: attach(module.PeftModel)}
