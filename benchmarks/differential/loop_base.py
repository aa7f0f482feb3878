"""What all parts of a hand-written loop's program know: its features, imports, configuration, seed and files."""

from __future__ import annotations

import ast
import textwrap

from differential.features import Features
from differential.text import Lines, lines, under

CLASSES, VOCABULARY = 3, 24
EXTRA = 14  # rows that evaluation gets


def needs_validation(f: Features) -> bool:
    return f["eval"] != "none" or f["form"] == "phases"


def names_in(block: Lines) -> set[str]:
    source = textwrap.dedent("\n".join(block))
    try:
        tree = ast.parse(source)
    except (
        SyntaxError
    ):  # a break or return outside of its loop is no syntax error for ast, so this is one of ours
        raise ValueError(source) from None
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


class LoopBase:
    """The features of a program and the names that it gives things."""

    def __init__(self, features: Features) -> None:
        self.f = f = features
        self.imports: set[str] = {"import torch", "from torch import nn", "import torch.nn.functional as F"}
        self.task = f["task"]
        self.accelerate = f["family"] == "accelerate"
        self.epochs, self.steps = 3, 14
        self.rows = f["dataset"] == "hf"  # batches are dicts
        self.inside = f["form"] in ("class",)
        self.model = "self.model" if self.inside else "model"
        self.optimizer = "self.optimizer" if self.inside else "optimizer"
        self.scheduler = "self.scheduler" if self.inside else "scheduler"
        self.gated = f["form"] in ("run_epoch", "phases")  # the loop evaluates as well
        self.has_own_loss = f["own_loss"] != "no"
        self.hf_model = f["model"] == "module" and self.task in ("lm", "tokens")

    def use(self, *needed: str) -> None:
        self.imports.update(needed)

    def _config(self) -> Lines:
        values = {"epochs": str(self.epochs), "batch_size": self.f["batch"], "lr": "0.02"}
        match self.f["config"]:
            case "constants":
                return [f"{name.upper()} = {value}" for name, value in values.items()]
            case "dict":
                return ["CFG = {", *(f'    "{name}": {value},' for name, value in values.items()), "}"]
            case "class":
                return under("class Config:", [f"{name} = {value}" for name, value in values.items()])
        return []

    def value(self, name: str) -> str:
        literal = {"epochs": str(self.epochs), "batch_size": self.f["batch"], "lr": "0.02"}[name]
        return {
            "literals": literal,
            "constants": name.upper(),
            "dict": f'CFG["{name}"]',
            "class": f"Config.{name}",
        }[self.f["config"]]

    def _seed(self) -> Lines:
        self.use("import random", "import numpy as np")
        block = ["random.seed(seed)", "np.random.seed(seed)", "torch.manual_seed(seed)"]
        match self.f["seed"]:
            case "function":
                return [*under("def seed_everything(seed=42):", block), "", "seed_everything(42)"]
            case "set_seed":
                self.use("from transformers import set_seed")
                return ["set_seed(42)"]
        return [line.replace("seed)", "0)") for line in block]

    def _files(self) -> Lines:
        out = '"outputs"'
        match self.f["filework"]:
            case "makedirs":
                self.use("import os")
                return [f"os.makedirs({out}, exist_ok=True)"]
            case "mkdir_try":
                self.use("import os")
                return ["try:", f"    os.mkdir({out})", "except FileExistsError:", '    print("exists")']
            case "remove_try":
                self.use("import os")
                return ["try:", '    os.remove("train.log")', "except OSError:", "    pass"]
            case "remove_suppress":
                self.use("import os", "import contextlib")
                return ["with contextlib.suppress(FileNotFoundError):", '    os.remove("train.log")']
            case "rmtree":
                self.use("import shutil")
                return [f"shutil.rmtree({out}, ignore_errors=True)"]
            case "rmtree_try":
                self.use("import shutil", "import os")
                return [
                    "try:",
                    f"    shutil.rmtree({out})",
                    "except Exception as e:",
                    '    print("nothing to clean")',
                    f"os.makedirs({out})",
                ]
            case "pathlib":
                self.use("from pathlib import Path")
                return [f"out_dir = Path({out})", "out_dir.mkdir(parents=True, exist_ok=True)"]
            case "urlretrieve_try":
                self.use("import urllib.request")
                return [
                    "try:",
                    '    urllib.request.urlretrieve("file:///nowhere/vocab.txt", "vocab.txt")',
                    "except Exception as e:",
                    '    print("no download, going on")',
                ]
            case "retry":
                self.use("import urllib.request")
                return lines("""
for attempt in range(3):
    try:
        urllib.request.urlretrieve("file:///nowhere/data.bin", "data.bin")
        break
    except OSError:
        print("retry", attempt)
""")
            case "exists_load":
                self.use("import os")
                return [
                    'if os.path.exists("cache.pt"):',
                    '    cache = torch.load("cache.pt")',
                    "else:",
                    "    cache = torch.arange(4)",
                    '    torch.save(cache, "cache.pt")',
                    "print(cache)",
                ]
        return []
