"""Put a hand-written training loop together, in plain PyTorch or on Accelerate, from its features."""

from __future__ import annotations

from features import Features  # type: ignore[import-not-found]
from text import Lines, indent, lines, under  # type: ignore[import-not-found]

CLASSES, VOCABULARY = 3, 24
EXTRA = 14  # rows that evaluation gets


def needs_validation(f: Features) -> bool:
    return f["eval"] != "none" or f["form"] == "phases"


class LoopProgram:
    """One program; `cells` are its notebook."""

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
        self.hf_model = f["model"] == "module" and self.task in ("lm", "tokens")

    # ---- the notebook ----

    @property
    def cells(self) -> list[str]:
        f = self.f
        body = [
            self._config(),
            self._seed() if f["seed"] in ("top", "function", "set_seed") else [],
            self._data(),
            self._seed() if f["seed"] == "late" else [],
            self._files(),
        ]
        if f["dataset"] == "kfold":
            body += [self._model_class(), self._evaluate(), self._functions(), self._folds()]
        elif f["form"] == "main":
            inner = [*self._loaders(), *self._model(), *self._prepare(), "", *self._train(), *self._after()]
            last = under("def main():", inner)
            call = (
                ["main()"] if f["order"] == "zero_first" else under('if __name__ == "__main__":', ["main()"])
            )
            body += [self._model_class(), self._evaluate(), last, call]
        else:
            body += [self._model_class(), self._loaders(), [*self._model(), *self._prepare()]]
            body += [self._evaluate(), self._functions(), self._train(), self._after()]
        return ["\n".join(self._imports()), *("\n".join(cell) for cell in body if cell)]

    def _imports(self) -> Lines:
        plain = sorted(line for line in self.imports if line.startswith("import"))
        return [*plain, *sorted(self.imports - set(plain))]

    def use(self, *needed: str) -> None:
        self.imports.update(needed)

    # ---- configuration, seeds, files ----

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

    # ---- data ----

    def _count(self) -> int:
        extra = (
            EXTRA
            if needs_validation(self.f) or self.f["dataset"] in ("split", "split_generator", "subset")
            else 0
        )
        return int(self.f["n"]) + extra

    def _random(self, *shape: int, ints: int = 0) -> tuple[Lines, str]:
        """Code before, and an expression for a float (or integer) tensor of random numbers."""
        dims = ", ".join(map(str, shape))
        dtype = "torch.long" if ints else "torch.float32"
        match self.f["source"]:
            case "torch_generator":
                before = ["g = torch.Generator().manual_seed(7)"]
                if ints:
                    return before, f"torch.randint(1, {ints}, ({dims}), generator=g)"
                return before, f"torch.randn({dims}, generator=g)"
            case "numpy" | "pandas" | "csv":
                self.use("import numpy as np")
                drawn = f"np.random.randint(1, {ints}, ({dims}))" if ints else f"np.random.randn({dims})"
                return [], f"torch.tensor({drawn}, dtype={dtype})"
            case "numpy_rng":
                self.use("import numpy as np")
                drawn = f"rng.integers(1, {ints}, ({dims}))" if ints else f"rng.normal(size=({dims}))"
                return ["rng = np.random.default_rng(0)"], f"torch.tensor({drawn}, dtype={dtype})"
            case "lists" if len(shape) == 2:
                self.use("import random")
                drawn = f"random.randint(1, {ints - 1})" if ints else "random.gauss(0, 1)"
                return [
                    f"rows = [[{drawn} for _ in range({shape[1]})] for _ in range({shape[0]})]"
                ], f"torch.tensor(rows, dtype={dtype})"
        return [], f"torch.randint(1, {ints}, ({dims}))" if ints else f"torch.randn({dims})"

    def _data(self) -> Lines:
        return [*self._arrays(), *self._splits(), *self._datasets()]

    def _arrays(self) -> Lines:
        n, f = self._count(), self.f
        if f["source"] == "sklearn":
            self.use("from sklearn.datasets import make_classification")
            made = [
                f"X, y = make_classification(n_samples={n}, n_features=8, n_informative=4, n_classes={CLASSES}, random_state=0)",
                "X = torch.tensor(X, dtype=torch.float32)",
                "y = torch.tensor(y, dtype=torch.long)",
            ]
        elif f["source"] in ("pandas", "csv"):
            made = self._frame(n)
        else:
            if self.task in ("tokens", "lm"):
                before, drawn = self._random(n, 10, ints=VOCABULARY)
            elif self.task == "image":
                before, drawn = self._random(n, 1, 8, 8)
            else:
                before, drawn = self._random(n, 8)
            made = [*before, f"X = {drawn}", *self._targets()]
        if f["loss"] == "ignore" and self.task not in ("lm", "pairs"):
            made.append("y[::5] = -100  # unlabelled rows")
        return made

    def _frame(self, n: int) -> Lines:
        self.use("import pandas as pd", "import numpy as np")
        made = [f'df = pd.DataFrame(np.random.randn({n}, 8), columns=[f"f{{i}}" for i in range(8)])']
        label = {
            "tabular": '(df["f0"] > 0).astype(int) + (df["f1"] > 0.5).astype(int)',
            "binary": '(df["f0"] + df["f1"] > 0).astype(float)',
            "regression": '2 * df["f0"] - df["f1"]',
            "pairs": 'df["f0"]',
        }[self.task]
        made.append(f'df["target"] = {label}')
        if self.f["source"] == "csv":
            made += [
                'df.to_csv("train.csv", index=False)',
                'df = pd.read_csv("train.csv")',
                "print(df.shape)",
            ]
        dtype = "torch.long" if self.task == "tabular" else "torch.float32"
        return [
            *made,
            'X = torch.tensor(df.drop(columns="target").values, dtype=torch.float32)',
            f'y = torch.tensor(df["target"].values, dtype={dtype})'
            if self.task != "pairs"
            else "y = X + 0.1 * torch.randn(X.shape)",
        ]

    def _targets(self) -> Lines:
        match self.task:
            case "binary":
                return ["y = (X[:, 0] + X[:, 1] > 0).float()"]
            case "regression":
                return ["y = 2 * X[:, 0] - X[:, 1]"]
            case "image":
                return ["y = (X.mean((1, 2, 3)) > 0).long() + (X[:, 0, 0, 0] > 0.5).long()"]
            case "tokens":
                return [f"y = (X[:, 0] + X[:, 1]) % {CLASSES}"]
            case "lm":
                return [
                    "y = X.clone()",
                    "for i in range(len(y)):",
                    "    y[i, : 1 + i % 6] = -100  # the prompt",
                ]
            case "pairs":
                return ["y = X + 0.1 * torch.randn(X.shape)"]
        return ["y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()"]

    def _splits(self) -> Lines:
        if not needs_validation(self.f) or self.f["dataset"] in (
            "split",
            "split_generator",
            "subset",
            "kfold",
        ):
            return []
        n = self.f["n"]
        return [f"X_val, y_val = X[{n}:], y[{n}:]", f"X, y = X[:{n}], y[:{n}]"]

    def _datasets(self) -> Lines:
        kind, n = self.f["dataset"], self.f["n"]
        val = needs_validation(self.f)
        if kind in ("class", "augment", "iterable"):
            made = self._dataset_class(kind)
            made += ["train_ds = MyDataset(X, y)"]
            if val:
                made += [
                    "val_ds = MyDataset(X_val, y_val)"
                    if kind == "class"
                    else "val_ds = torch.utils.data.TensorDataset(X_val, y_val)"
                ]
            return made
        if kind == "list":
            return ["train_ds = list(zip(X, y))", *(["val_ds = list(zip(X_val, y_val))"] if val else [])]
        if kind == "hf":
            self.use("from datasets import Dataset")
            made = [
                'train_ds = Dataset.from_dict({"x": X.tolist(), "label": y.tolist()}).with_format("torch")'
            ]
            return made + (
                [
                    'val_ds = Dataset.from_dict({"x": X_val.tolist(), "label": y_val.tolist()}).with_format("torch")'
                ]
                if val
                else []
            )
        self.use("from torch.utils.data import TensorDataset")
        if kind == "kfold":
            return []
        if kind in ("split", "split_generator"):
            self.use("from torch.utils.data import random_split")
            generator = ", generator=torch.Generator().manual_seed(1)" if kind == "split_generator" else ""
            return [f"train_ds, val_ds = random_split(TensorDataset(X, y), [{n}, {EXTRA}]{generator})"]
        if kind == "subset":
            self.use("from torch.utils.data import Subset")
            return [
                "dataset = TensorDataset(X, y)",
                f"train_ds = Subset(dataset, range({n}))",
                f"val_ds = Subset(dataset, range({n}, {self._count()}))",
            ]
        return ["train_ds = TensorDataset(X, y)", *(["val_ds = TensorDataset(X_val, y_val)"] if val else [])]

    def _dataset_class(self, kind: str) -> Lines:
        if kind == "iterable":
            self.use("from torch.utils.data import IterableDataset")
            body = lines("""
def __init__(self, X, y):
    self.X, self.y = X, y

def __iter__(self):
    for i in range(len(self.X)):
        yield self.X[i], self.y[i]
""")
            return [*under("class MyDataset(IterableDataset):", body), ""]
        self.use("from torch.utils.data import Dataset")
        item = (
            "x + 0.1 * torch.randn_like(x)"
            if kind == "augment" and self.task not in ("tokens", "lm")
            else "x"
        )
        body = lines(f"""
def __init__(self, X, y):
    self.X = X
    self.y = y

def __len__(self):
    return len(self.X)

def __getitem__(self, idx):
    x = self.X[idx]
    return {item}, self.y[idx]
""")
        return [*under("class MyDataset(Dataset):", body), ""]

    # ---- loaders ----

    def _loader_call(self, dataset: str = "train_ds") -> tuple[Lines, str]:
        f, before, given = self.f, [], ""
        if f["shuffle"] == "yes":
            given += ", shuffle=True"
        if f["sampler"] == "weighted":
            self.use("from torch.utils.data import WeightedRandomSampler")
            before = [
                "weights = 1.0 / torch.bincount(y.clamp(min=0), minlength=3).float()[y.clamp(min=0)]",
                "sampler = WeightedRandomSampler(weights, num_samples=len(y))",
            ]
            given += ", sampler=sampler"
        elif f["sampler"] == "subset_random":
            self.use("from torch.utils.data import SubsetRandomSampler")
            before = [f"sampler = SubsetRandomSampler(list(range({int(f['n']) - 4})))"]
            given += ", sampler=sampler"
        elif f["sampler"] == "random":
            self.use("from torch.utils.data import RandomSampler")
            given += ", sampler=RandomSampler(train_ds)"
        if f["loader"] == "generator_arg" and f["shuffle"] == "yes":
            given += ", generator=torch.Generator().manual_seed(3)"
        if f["drop_last"] == "yes":
            given += ", drop_last=True"
        return before, f"DataLoader({dataset}, batch_size={self.value('batch_size')}{given})"

    @property
    def loader(self) -> str:
        return 'loaders["train"]' if self.f["loader"] == "dict" else "train_loader"

    @property
    def val_loader(self) -> str:
        return 'loaders["val"]' if self.f["loader"] == "dict" else "val_loader"

    def _loaders(self) -> Lines:
        self.use("from torch.utils.data import DataLoader")
        before, call = self._loader_call()
        val = needs_validation(self.f)
        val_call = "DataLoader(val_ds, batch_size=4)"
        match self.f["loader"]:
            case "dict":
                return [
                    *before,
                    "loaders = {",
                    f'    "train": {call},',
                    *([f'    "val": {val_call},'] if val else []),
                    "}",
                ]
            case "function":
                made = [*before, f"train_loader = {call}"]
                if not val:
                    return [
                        *under("def get_loader(train_ds):", [*before, f"return {call}"]),
                        "",
                        "train_loader = get_loader(train_ds)",
                    ]
                return [
                    *under(
                        "def get_loaders():",
                        [*made, f"val_loader = {val_call}", "return train_loader, val_loader"],
                    ),
                    "",
                    "train_loader, val_loader = get_loaders()",
                ]
        made = [*before, f"train_loader = {call}"]
        if val:
            made.append(f"val_loader = {val_call}")
        if self.f["loader"] == "peek":
            made += [
                "sample = next(iter(train_loader))",
                'print("batch", sample["x"].shape)' if self.rows else 'print("batch", sample[0].shape)',
            ]
        return made

    # ---- model ----

    def _model_class(self) -> Lines:
        kind, f = self.task, self.f
        out = {"binary": 1, "regression": 1, "pairs": 8}.get(kind, CLASSES)
        norm = {
            "batchnorm": "nn.BatchNorm1d(16), ",
            "layernorm": "nn.LayerNorm(16), ",
            "lazy": "nn.LazyBatchNorm1d(), ",
        }.get(f["model"], "")
        if self.hf_model:
            return self._hf_class()
        if kind == "tokens":
            norm_line = {
                "batchnorm": "self.norm = nn.BatchNorm1d(16)",
                "layernorm": "self.norm = nn.LayerNorm(16)",
            }.get(f["model"], "self.norm = nn.Identity()")
            return lines(f"""
class TextClassifier(nn.Module):
    def __init__(self, vocab_size={VOCABULARY}, dim=16):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, dim, padding_idx=0)
        {norm_line}
        self.fc = nn.Linear(dim, {out})

    def forward(self, ids):
        return self.fc(self.norm(self.embedding(ids).mean(dim=1)))
""")
        if kind == "lm":
            return lines(f"""
class TinyLM(nn.Module):
    def __init__(self, vocab_size={VOCABULARY}, dim=16):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab_size)

    def forward(self, ids):
        hidden, _ = self.rnn(self.embedding(ids))
        return self.head(hidden)
""")
        if kind == "image":
            norm2 = "nn.BatchNorm2d(4), " if f["model"] in ("batchnorm", "lazy") else ""
            return lines(f"""
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), {norm2}nn.ReLU(), nn.MaxPool2d(2))
        self.classifier = nn.Linear(4 * 4 * 4, {out})

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))
""")
        if f["model"] == "plain":
            return []
        skip = "h + self.fc2(torch.relu(h))" if f["model"] == "residual" else "torch.relu(h)"
        extra = "        self.fc2 = nn.Linear(16, 16)\n" if f["model"] == "residual" else ""
        return lines(f"""
class Net(nn.Module):
    def __init__(self, n_features=8, hidden=16):
        super().__init__()
        self.fc1 = nn.Sequential(nn.Linear(n_features, hidden), {norm}nn.Identity())
{extra}        self.out = nn.Linear(hidden, {out})

    def forward(self, x):
        h = self.fc1(x)
        return self.out({skip})
""")

    def _hf_class(self) -> Lines:
        if self.task == "lm":
            self.use("from transformers import LlamaConfig, LlamaForCausalLM")
            return lines(f"""
config = LlamaConfig(
    vocab_size={VOCABULARY}, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=32,
)
""")
        self.use("from transformers import BertConfig, BertForSequenceClassification")
        return lines(f"""
config = BertConfig(
    vocab_size={VOCABULARY}, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels={CLASSES}, max_position_embeddings=32,
)
""")

    def _make_model(self) -> str:
        if self.hf_model:
            return (
                "LlamaForCausalLM(config)" if self.task == "lm" else "BertForSequenceClassification(config)"
            )
        if self.task in ("tokens", "lm", "image") or self.f["model"] != "plain":
            return {"tokens": "TextClassifier()", "lm": "TinyLM()"}.get(self.task, "Net()")
        out = {"binary": 1, "regression": 1, "pairs": 8}.get(self.task, CLASSES)
        return f"nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, {out}))"

    def _model(self) -> Lines:
        f, made = self.f, []
        if f["device"] == "yes":
            made.append('device = torch.device("cuda" if torch.cuda.is_available() else "cpu")')
        made.append(f"model = {self._make_model()}" + (".to(device)" if f["device"] == "yes" else ""))
        if f["model"] == "lazy" and self.task not in ("tokens", "lm", "image"):
            made.append("model(torch.zeros(2, 8))  # lazy layers")
        lr = self.value("lr")
        made.append(
            {
                "sgd": f"optimizer = torch.optim.SGD(model.parameters(), lr=5 * {lr})",
                "momentum": f"optimizer = torch.optim.SGD(model.parameters(), lr={lr}, momentum=0.9)",
                "adam": f"optimizer = torch.optim.Adam(model.parameters(), lr={lr})",
                "adamw": f"optimizer = torch.optim.AdamW(model.parameters(), lr={lr}, weight_decay=0.01)",
                "groups": f"optimizer = torch.optim.AdamW([{{'params': [p for p in model.parameters() if p.dim() > 1], 'weight_decay': 0.1}}, "
                f"{{'params': [p for p in model.parameters() if p.dim() <= 1], 'weight_decay': 0.0}}], lr={lr})",
            }[f["optimizer"]]
        )
        if self._has_criterion:
            made.append(f"criterion = {self._criterion()}")
        made += self._make_schedule()
        if f["amp"] == "scaler":
            made.append('scaler = torch.amp.GradScaler("cuda", enabled=False)')
        if f["ema"] == "copy":
            self.use("import copy")
            made.append("ema_model = copy.deepcopy(model)")
        elif f["ema"] == "averaged":
            self.use("from torch.optim.swa_utils import AveragedModel")
            made.append("ema_model = AveragedModel(model)")
        return made

    def _make_schedule(self) -> Lines:
        lr, epochs = self.value("lr"), self.value("epochs")
        new = "scheduler = torch.optim.lr_scheduler."
        match self.f["schedule"]:
            case "step_epoch":
                return [f"{new}StepLR(optimizer, step_size=1, gamma=0.5)"]
            case "step_batch":
                return [f"{new}CosineAnnealingLR(optimizer, T_max=30)"]
            case "plateau":
                return [f"{new}ReduceLROnPlateau(optimizer, factor=0.5, patience=0, threshold=0.2)"]
            case "lambda":
                self.use("from transformers import get_linear_schedule_with_warmup")
                return [
                    "scheduler = get_linear_schedule_with_warmup(optimizer, num_warmup_steps=3, num_training_steps=30)"
                ]
            case "onecycle":
                return [
                    f"{new}OneCycleLR(optimizer, max_lr={lr}, steps_per_epoch=len({self.loader}), epochs={epochs} + 1)"
                ]
        return []

    @property
    def _has_criterion(self) -> bool:
        return (
            self.f["loss"] in ("criterion", "weighted", "ignore", "smoothing")
            and self.task != "pairs"
            and not (self.task == "lm" and self.hf_model)
        )

    def _criterion(self) -> str:
        if self.task in ("binary", "regression"):
            return "nn.BCEWithLogitsLoss()" if self.task == "binary" else "nn.MSELoss()"
        return {
            "weighted": "nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0, 0.3]))",
            "ignore": "nn.CrossEntropyLoss(ignore_index=-100)",
            "smoothing": "nn.CrossEntropyLoss(label_smoothing=0.1)",
        }.get(self.f["loss"], "nn.CrossEntropyLoss()")

    def _prepare(self) -> Lines:
        if not self.accelerate:
            return []
        self.use("from accelerate import Accelerator")
        steps = "gradient_accumulation_steps=2" if self.f["accumulation"] == "context" else ""
        names = ["model", "optimizer", "train_loader", *(["val_loader"] if needs_validation(self.f) else [])]
        if self.f["schedule"] != "none" and self.f["schedule"] not in ("plateau", "manual"):
            names.append("scheduler")
        return [
            f"accelerator = Accelerator({steps})",
            f"{', '.join(names)} = accelerator.prepare({', '.join(names)})",
        ]

    # ---- one step ----

    def _call(self, model: str, x: str = "xb") -> str:
        return f"{model}(input_ids={x}).logits" if self.hf_model else f"{model}({x})"

    def _loss_lines(self, model: str) -> Lines:
        """``out`` and ``loss`` of a batch."""
        f = self.f
        if self.task == "pairs":
            made = [
                f"za, zb = F.normalize({model}(xb)), F.normalize({model}(yb))",
                "scores = za @ zb.T / 0.1",
            ]
            return [*made, "loss = F.cross_entropy(scores, torch.arange(len(scores)))"]
        if self.hf_model and f["loss"] == "functional":
            return [f"outputs = {model}(input_ids=xb, labels=yb)", "loss, out = outputs.loss, outputs.logits"]
        squeeze = ".squeeze(1)" if self.task in ("binary", "regression") else ""
        made = [f"out = {self._call(model)}{squeeze}"]
        target, scores = "yb", "out"
        if self.task == "lm":
            scores, target = f"out[:, :-1].reshape(-1, {VOCABULARY})", "yb[:, 1:].reshape(-1)"
        name = {"binary": "binary_cross_entropy_with_logits", "regression": "mse_loss"}.get(
            self.task, "cross_entropy"
        )
        base = f"F.{name}({scores}, {target}"
        match f["loss"]:
            case "criterion" | "weighted" | "ignore" | "smoothing" if self._has_criterion:
                return [*made, f"loss = criterion({scores}, {target})"]
            case "sum":
                count = "(yb[:, 1:] != -100).sum()" if self.task == "lm" else "len(yb)"
                return [*made, f'loss = {base}, reduction="sum") / {count}']
            case "manual":
                return [*made, "loss = -torch.log_softmax(out, dim=1)[torch.arange(len(yb)), yb].mean()"]
            case "none_mean":
                return [*made, f'losses_per_row = {base}, reduction="none")', "loss = losses_per_row.mean()"]
            case "aux":
                return [
                    *made,
                    f"main_loss = {base})",
                    "aux_loss = out.pow(2).mean()",
                    "loss = main_loss + 0.1 * aux_loss",
                ]
            case "penalty":
                return [
                    *made,
                    f"l2 = sum(p.pow(2).sum() for p in {model}.parameters())",
                    f"loss = {base}) + 1e-3 * l2",
                ]
        return [*made, f"loss = {base})"]

    def _unpack(self) -> Lines:
        made = ['xb, yb = batch["x"], batch["label"]'] if self.rows else []
        if self.f["device"] == "yes":
            made.append("xb, yb = xb.to(device), yb.to(device)")
        return made

    @property
    def _target(self) -> str:
        return "batch" if self.rows else "xb, yb"

    def _body(self) -> Lines:
        """What one batch goes through, after it has been unpacked."""
        f = self.f
        made: Lines = []
        accumulating = f["accumulation"] not in ("none", "context")
        if f["control"] == "skip":
            limit = "xb[:, 0].max() > 20" if self.task in ("tokens", "lm") else "xb.abs().max() > 2.8"
            made += [f"if {limit}:  # too far out", "    continue"]
        zero = [f"{self.optimizer}.zero_grad()"]
        forward = self._loss_lines(self.model)
        if f["amp"] == "autocast":
            forward = under('with torch.autocast("cpu", enabled=False):', forward)
        if f["order"] == "zero_first" and not accumulating:
            forward = [*([] if self.gated else zero), *forward]
        if f["control"] == "nan":
            forward += ["if torch.isnan(loss):", "    continue"]
        elif f["control"] == "nan_break":
            forward += ["if not torch.isfinite(loss):", '    print("diverged")', "    break"]
        update = [*(zero if self.gated and f["order"] == "zero_first" else []), *self._update()]
        if f["control"] == "try_step" and not self.gated:
            made += [
                "try:",
                *indent([*forward, *update]),
                "except RuntimeError as e:",
                '    print("skipped", e)',
                "    continue",
            ]
        elif f["form"] == "phases":
            gate = under(
                'with torch.set_grad_enabled(phase == "train"):',
                [*forward, *under('if phase == "train":', update)],
            )
            made += gate
        elif f["form"] == "run_epoch":
            made += [*forward, *under("if train:", update)]
        elif f["accumulation"] == "context":
            made += under("with accelerator.accumulate(model):", [*forward, *update])
        else:
            made += [*forward, *update]
        return [*made, *self._metric_updates()]

    def _update(self) -> Lines:
        """Backward and what follows, up to the scheduler."""
        f = self.f
        k = 2
        loss = "loss / 2" if f["accumulation"] in ("modulo", "modulo_last", "manual_counter") else "loss"
        if self.accelerate:
            made = [f"accelerator.backward({loss})"]
        elif f["amp"] == "scaler":
            made = [f"scaler.scale({loss}).backward()"]
        else:
            made = [f"({loss}).backward()" if "/" in loss else "loss.backward()"]
        step: Lines = []
        params = f"{self.model}.parameters()"
        if f["clip"] != "none":
            if f["amp"] == "scaler":
                step.append(f"scaler.unscale_({self.optimizer})")
            if f["clip"] == "value":
                step.append(f"torch.nn.utils.clip_grad_value_({params}, 0.05)")
            else:
                clip = "accelerator.clip_grad_norm_" if self.accelerate else "torch.nn.utils.clip_grad_norm_"
                keeps = "grad_norm = " if f["clip"] == "norm_print" or f["metric"] == "grad_norm" else ""
                step.append(f"{keeps}{clip}({params}, 0.5)")
        step += (
            [f"scaler.step({self.optimizer})", "scaler.update()"]
            if f["amp"] == "scaler"
            else [f"{self.optimizer}.step()"]
        )
        if f["schedule"] in ("step_batch", "lambda", "onecycle"):
            step.append(f"{self.scheduler}.step()")
        elif f["schedule"] == "manual":
            step += [f"for group in {self.optimizer}.param_groups:", '    group["lr"] *= 0.95']
        if f["control"] == "warmup":
            step += [
                f"for group in {self.optimizer}.param_groups:",
                f'    group["lr"] = {self.value("lr")} * min(1.0, (step + 1) / 5)',
            ]
        if f["ema"] == "copy":
            step += [
                "with torch.no_grad():",
                f"    for e, p in zip(ema_model.parameters(), {params}):",
                "        e.mul_(0.9).add_(p, alpha=0.1)",
            ]
        elif f["ema"] == "averaged":
            step.append(f"ema_model.update_parameters({self.model})")
        accumulating = f["accumulation"] not in ("none", "context")
        if f["order"] == "zero_after" or accumulating:
            step.append(f"{self.optimizer}.zero_grad()")
        match f["accumulation"]:
            case "modulo":
                return [*made, *under(f"if (i + 1) % {k} == 0:", step)]
            case "modulo_last":
                return [*made, *under(f"if (i + 1) % {k} == 0 or i + 1 == len({self._loader_name}):", step)]
            case "manual_counter":
                return [*made, "pending += 1", *under(f"if pending == {k}:", [*step, "pending = 0"])]
        return [*made, *step]

    # ---- metrics ----

    @property
    def _loader_name(self) -> str:
        if self.f["form"] in ("function", "run_epoch", "fit"):
            return {"fit": "train_loader"}.get(self.f["form"], "loader")
        if self.f["form"] == "phases":
            return "loaders[phase]"
        return "self.loader" if self.inside else self.loader

    @property
    def _count_of(self) -> str:
        return "yb.size(0)" if self.f["order"] == "zero_first" else "len(xb)"

    def _metric_inits(self) -> Lines:
        f = self.f
        made = {
            "runmean": ["running = 0.0"],
            "sized": ["running = 0.0"],
            "seen": ["running, seen = 0.0, 0"],
            "tensor": ["total_loss = 0"],
            "list": ["losses = []"],
            "gather": ["losses = []"],
            "ema": ["smooth = None"],
            "deque": ["window = deque(maxlen=3)"],
            "meter": ["meter = AverageMeter()"],
            "last": [],
        }[f["loss_metric"]]
        made = made + {
            "acc": ["correct, total = 0, 0"],
            "f1": ["tp = fp = fn = 0"],
            "tokens": ["n_tokens = 0"],
            "preds": ["all_preds, all_labels = [], []"],
            "dict": ['stats = {"correct": 0, "count": 0}'],
            "grad_norm": ["norms = []"],
            "gathered": ["correct, total = 0, 0"],
        }.get(f["metric"], [])
        if f["accumulation"] == "manual_counter":
            made = [*made, "pending = 0"]
        if f["loss_metric"] == "deque":
            self.use("from collections import deque")
        return made

    @property
    def _predicted(self) -> str:
        return (
            "(out > 0).float()"
            if self.task == "binary"
            else "out.argmax(-1)"
            if self.f["metric"] != "acc"
            else "out.argmax(dim=1)"
        )

    def _metric_updates(self) -> Lines:
        f, n = self.f, self._count_of
        made = {
            "runmean": ["running += loss.item()"],
            "sized": [f"running += loss.item() * {n}"],
            "seen": [f"running += loss.item() * {n}", f"seen += {n}"],
            "tensor": ["total_loss += loss.detach()"],
            "list": ["losses.append(loss.item())"],
            "gather": ["losses.append(accelerator.gather(loss.detach()).mean().item())"],
            "ema": ["smooth = loss.item() if smooth is None else 0.9 * smooth + 0.1 * loss.item()"],
            "deque": ["window.append(loss.item())"],
            "meter": [f"meter.update(loss.item(), {n})"],
            "last": [],
        }[f["loss_metric"]]
        preds = f"preds = {self._predicted}"
        positive = "1" if self.task != "binary" else "1.0"
        made = made + {
            "acc": [preds, "correct += (preds == yb).sum().item()", f"total += {n}"],
            "f1": [
                preds,
                f"tp += ((preds == {positive}) & (yb == {positive})).sum().item()",
                f"fp += ((preds == {positive}) & (yb != {positive})).sum().item()",
                f"fn += ((preds != {positive}) & (yb == {positive})).sum().item()",
            ],
            "tokens": ["n_tokens += (yb != -100).sum().item()"],
            "preds": [f"all_preds.extend({self._predicted}.tolist())", "all_labels.extend(yb.tolist())"],
            "dict": [preds, 'stats["correct"] += int((preds == yb).sum())', f'stats["count"] += {n}'],
            "grad_norm": ["norms.append(float(grad_norm))"]
            if f["accumulation"] == "none" and not self.gated
            else [],
            "gathered": [
                "preds, refs = accelerator.gather_for_metrics((out.argmax(-1), yb))",
                "correct += (preds == refs).sum().item()",
                "total += refs.numel()",
            ],
        }.get(f["metric"], [])
        return made

    def _metric_values(self) -> Lines:
        """After an epoch: ``train_loss`` and ``train_metric``."""
        f = self.f
        size = f"len({self._loader_name}.dataset)"
        made = {
            "runmean": [f"train_loss = running / len({self._loader_name})"],
            "sized": [f"train_loss = running / {size}"],
            "seen": ["train_loss = running / seen"],
            "tensor": [f"train_loss = (total_loss / len({self._loader_name})).item()"],
            "list": ["train_loss = sum(losses) / len(losses)"],
            "gather": ["train_loss = sum(losses) / len(losses)"],
            "ema": ["train_loss = smooth"],
            "deque": ["train_loss = sum(window) / len(window)"],
            "meter": ["train_loss = meter.avg"],
            "last": ["train_loss = loss.item()"],
        }[f["loss_metric"]]
        return made + {
            "acc": ["train_metric = correct / total"],
            "f1": ["train_metric = 2 * tp / max(2 * tp + fp + fn, 1)"],
            "tokens": ["train_metric = n_tokens"],
            "preds": ["train_metric = accuracy_score(all_labels, all_preds)"],
            "dict": ['train_metric = stats["correct"] / stats["count"]'],
            "grad_norm": ["train_metric = max(norms, default=0.0)"],
            "gathered": ["train_metric = correct / total"],
        }.get(f["metric"], [])

    @property
    def _values(self) -> str:
        return "train_loss, train_metric" if self.f["metric"] != "none" else "train_loss"

    def _helpers(self) -> Lines:
        made: Lines = []
        if self.f["metric"] == "preds":
            self.use("from sklearn.metrics import accuracy_score")
        if self.f["loss_metric"] == "meter":
            made += lines("""
class AverageMeter:
    def __init__(self):
        self.sum = 0.0
        self.count = 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(self.count, 1)
""")
            made.append("")
        return made

    # ---- loops ----

    def _step_reports(self) -> Lines:
        f = self.f
        made: Lines = []
        loss = "loss.item()"
        if f["stepprint"] in ("every", "write"):
            made += ["if i % 3 == 0:", f'    print(f"step {{i}} loss {{{loss}:.4f}}")']
        elif f["stepprint"] == "postfix" and f["form"] == "tqdm":
            made += [f"bar.set_postfix(loss={loss})"]
        if f["clip"] == "norm_print" and f["accumulation"] == "none" and not self.gated:
            made += ['print(f"grad norm {float(grad_norm):.4f}")']
        if f["log"] == "jsonl_append":
            self.use("import json")
            made += [
                'with open("steps.jsonl", "a") as fh:',
                f'    fh.write(json.dumps({{"loss": {loss}}}) + "\\n")',
            ]
        elif f["log"] == "with_loop":
            made += [f'log_file.write(f"{{{loss}:.5f}}\\n")']
        if f["control"] in ("max_steps", "warmup", "time_limit", "break_loss"):
            made += ["step += 1"]
        if f["control"] == "max_steps":
            made += ["if step >= 13:", "    break"]
        elif f["control"] == "time_limit":
            made += ["if time.time() - start > 600:", '    print("out of time")', "    break"]
        elif f["control"] == "break_loss":
            made += ["if loss.item() < 0.75:", '    print("good enough at", step)', "    break"]
        return made

    def _batches(self, source: str, body: Lines) -> Lines:
        """The loop over the batches of one epoch."""
        f = self.f
        body = [*self._unpack(), *body, *self._step_reports()]
        target = self._target
        unpacked = target if self.rows else f"({target})"
        counts = "i" in _names(body)
        match f["form"]:
            case "tqdm":
                self.use("from tqdm.auto import tqdm")
                head = [f'bar = tqdm({source}, desc=f"epoch {{epoch}}")']
                if counts:
                    return [*head, *under(f"for i, {unpacked} in enumerate(bar):", body)]
                return [*head, *under(f"for {target} in bar:", body)]
            case "zip":
                if counts:
                    return under(f"for i, ({unpacked}, k) in enumerate(zip({source}, range(100))):", body)
                return under(f"for {unpacked}, k in zip({source}, range(100)):", body)
            case "generator":
                source = f"batches({source})"
        if counts or f["form"] == "enumerate":
            name = "i" if counts else "batch_idx"
            return under(f"for {name}, {unpacked} in enumerate({source}):", body)
        return under(f"for {target} in {source}:", body)

    def _epoch(self, source: str) -> Lines:
        return [*self._metric_inits(), *self._batches(source, self._body()), *self._metric_values()]

    def _functions(self) -> Lines:
        f, form = self.f, self.f["form"]
        made = self._helpers()
        values = self._values
        extra = ", scheduler=None" if "scheduler.step" in "\n".join(self._update()) else ""
        match form:
            case "function":
                body = ["model.train()", *self._epoch("loader"), f"return {values}"]
                body = self._with_state(body)
                made += under(f"def train_one_epoch(model, loader, optimizer, epoch{extra}):", body)
            case "function_global":
                made += under(
                    "def train_one_epoch(epoch):",
                    self._with_state(["model.train()", *self._epoch(self.loader), f"return {values}"]),
                )
            case "run_epoch":
                loop = self._batches("loader", self._body())
                body = [
                    "train = optimizer is not None",
                    "model.train(train)",
                    *self._metric_inits(),
                    *under("with torch.set_grad_enabled(train):", loop),
                    *self._metric_values(),
                    f"return {values}",
                ]
                made += under(
                    "def run_epoch(model, loader, optimizer=None, epoch=0):", self._with_state(body)
                )
            case "generator":
                made += under("def batches(loader):", under("for batch in loader:", ["yield batch"]))
            case "step_function":
                made += under(
                    f"def train_step({'batch' if self.rows else 'xb, yb'}):",
                    ["model.train()", *self._unpack(), *self._simple_step(), "return loss.item()"],
                )
            case "class":
                made += self._class()
            case "fit":
                inner = self._epochs(self.value("epochs"), "train_loader")
                made += under("def fit(model, train_loader, val_loader, optimizer):", self._with_state(inner))
        return [*made, ""] if made else []

    def _with_state(self, body: Lines) -> Lines:
        """A function's ``global`` line for what it counts beyond an epoch."""
        if "step += 1" in "\n".join(body) and self.f["form"] in ("function", "function_global", "run_epoch"):
            return ["global step", *body]
        return body

    def _simple_step(self) -> Lines:
        made = [
            f"{self.optimizer}.zero_grad()",
            *self._loss_lines(self.model),
            "loss.backward()" if not self.accelerate else "accelerator.backward(loss)",
        ]
        if self.f["clip"] != "none":
            made.append(f"torch.nn.utils.clip_grad_norm_({self.model}.parameters(), 0.5)")
        return [*made, f"{self.optimizer}.step()"]

    def _class(self) -> Lines:
        names = ["model", "loader", "optimizer"]
        if self.scheduler in "\n".join(self._update()) or self.f["schedule"] in ("step_epoch", "plateau"):
            names.append("scheduler")
        init = under(f"def __init__(self, {', '.join(names)}):", [f"self.{name} = {name}" for name in names])
        epoch = under(
            "def train_epoch(self, epoch):",
            self._with_global(["self.model.train()", *self._epoch("self.loader"), f"return {self._values}"]),
        )
        fit = under("def fit(self, epochs):", self._with_global(self._epochs("epochs", "self.loader")))
        self.class_names = names
        return under("class Fitter:", [*init, "", *epoch, "", *fit])

    def _with_global(self, body: Lines) -> Lines:
        return (
            ["global step", *body] if "step += 1" in "\n".join(body) or "step >=" in "\n".join(body) else body
        )

    def _state(self) -> Lines:
        """What stands before the loop."""
        f, made = self.f, []
        text = "\n".join([*self._update(), *self._step_reports()])
        if "step += 1" in text or "step + 1" in text:
            made.append("step = 0")
        if f["control"] == "time_limit":
            self.use("import time")
            made.append("start = time.time()")
        if f["control"] == "patience":
            made += ['best_loss, bad_epochs = float("inf"), 0']
        if f["best"] == "acc":
            made.append("best_acc = 0.0")
        elif f["best"] in ("loss", "val"):
            made.append('best = float("inf")')
        if f["report"] == "table" or f["log"] in ("json", "csv", "numpy"):
            made.append("history = []")
        if f["log"] == "csv_open":
            self.use("import csv")
            made += [
                'log = open("log.csv", "w", newline="")',
                "writer = csv.writer(log)",
                'writer.writerow(["epoch", "loss"])',
            ]
        elif f["log"] == "logging_file" or f["report"] == "logging":
            self.use("import logging")
            made += [
                'logging.basicConfig(filename="train.log", level=logging.INFO, format="%(message)s")',
                'logger = logging.getLogger("train")',
            ]
        return made

    def _train(self) -> Lines:
        f, form = self.f, self.f["form"]
        made = (
            self._state()
            if form not in ("main", "fit", "class", "while", "iterator", "step_function")
            else []
        )
        if form == "main":
            made = [*self._helpers(), *self._state()]
        if f["eval"] in ("before", "both"):
            made += (
                [
                    f"val_loss, val_acc = evaluate(model, {self.val_loader})",
                    'print(f"before training: {val_loss:.4f} {val_acc:.3f}")',
                ]
                if self._eval_fn
                else []
            )
        epochs = self.value("epochs")
        match form:
            case "while":
                made += self._while()
            case "iterator":
                made += self._iterator()
            case "step_function":
                star = "batch" if self.rows else "xb, yb"
                inner = [
                    f"train_loss = train_step({star})",
                    'print(f"{train_loss:.4f}")' if f["report"] != "plain" else "print(train_loss)",
                ]
                loop = under(f"for epoch in range({epochs}):", under(f"for {star} in {self.loader}:", inner))
                made += loop
            case "class":
                made += [
                    f"fitter = Fitter({', '.join(self._given(name) for name in self.class_names)})",
                    f"fitter.fit({epochs})",
                ]
            case "fit":
                val = self.val_loader if needs_validation(f) else "None"
                made += [f"fit(model, {self.loader}, {val}, optimizer)"]
            case _:
                made += self._with_log(self._epochs(epochs, self.loader))
        if f["log"] == "csv_open" and form not in ("fit", "class"):
            made.append("log.close()")
        return made

    def _given(self, name: str) -> str:
        return self.loader if name == "loader" else name

    def _with_log(self, loop: Lines) -> Lines:
        if self.f["log"] == "with_loop":
            return under('with open("loss.txt", "w") as log_file:', loop)
        return loop

    def _while(self) -> Lines:
        inner = [
            *self._unpack(),
            *self._simple_step(),
            "step += 1",
            "if step % 3 == 0:",
            '    print(f"step {step}: {loss.item():.4f}")',
            f"if step >= {self.steps}:",
            "    break",
        ]
        return [
            "step = 0",
            "model.train()",
            *under(f"while step < {self.steps}:", under(f"for {self._target} in {self.loader}:", inner)),
        ]

    def _iterator(self) -> Lines:
        inner = [
            "try:",
            f"    {self._target} = next(data_iter)",
            "except StopIteration:",
            f"    data_iter = iter({self.loader})",
            f"    {self._target} = next(data_iter)",
            *self._unpack(),
            *self._simple_step(),
            "losses.append(loss.item())",
            "if step % 5 == 0:",
            '    print(f"step {step}: {loss.item():.4f}")',
        ]
        return [
            "losses = []",
            f"data_iter = iter({self.loader})",
            "model.train()",
            *under(f"for step in range({self.steps}):", inner),
            'print(f"mean {sum(losses) / len(losses):.4f}")',
        ]

    def _epochs(self, epochs: str, source: str) -> Lines:
        """The loop over the epochs."""
        f, form = self.f, self.f["form"]
        made = self._state() if form in ("fit", "class") else []
        match form:
            case "function" | "function_global":
                given = (
                    "epoch"
                    if form == "function_global"
                    else f"model, {source}, optimizer, epoch"
                    + (", scheduler" if "scheduler.step" in "\n".join(self._update()) else "")
                )
                inner = [f"{self._values} = train_one_epoch({given})"]
            case "class":
                inner = [f"{self._values} = self.train_epoch(epoch)"]
            case "run_epoch":
                inner = [f"{self._values} = run_epoch(model, {source}, optimizer, epoch)"]
            case "phases":
                return [*made, *under(f"for epoch in range({epochs}):", self._phases())]
            case _:
                inner = [f"{self.model}.train()", *self._epoch(source)]
        if f["control"] == "try_epoch":
            inner = [
                "try:",
                *indent(inner),
                "except ValueError as e:",
                '    print("epoch failed", e)',
                "    break",
            ]
        inner = [*inner, *self._after_epoch()]
        loop = under(f"for epoch in range({epochs}):", inner)
        if f["control"] == "interrupt":
            loop = ["try:", *indent(loop), "except KeyboardInterrupt:", '    print("stopped by hand")']
        if form in ("fit", "class"):
            loop = self._with_log(loop)
        return [*made, *loop]

    def _phases(self) -> Lines:
        inner = [
            'model.train() if phase == "train" else model.eval()',
            *self._metric_inits(),
            *self._batches("loaders[phase]", self._body()),
            *self._metric_values(),
        ]
        value = 'print(f"{epoch} {phase}: {train_loss:.4f}' + (
            ' {train_metric:.4f}")' if self.f["metric"] != "none" else '")'
        )
        plateau = (
            ["if phase == 'val':", "    scheduler.step(train_loss)"]
            if self.f["schedule"] == "plateau"
            else []
        )
        step = ["scheduler.step()"] if self.f["schedule"] == "step_epoch" else []
        logs = (
            ["history.append(train_loss)"]
            if self.f["log"] in ("json", "csv", "numpy") or self.f["report"] == "table"
            else []
        )
        return [*under('for phase in ["train", "val"]:', [*inner, value, *plateau, *logs]), *step]

    def _after_epoch(self) -> Lines:
        f = self.f
        made: Lines = []
        metric = f["metric"] != "none"
        evaluates = f["eval"] in ("each", "both") and self._eval_fn
        if evaluates:
            if f["form"] == "run_epoch":
                values = "val_loss, val_metric" if metric else "val_loss"
                made += [f"{values} = run_epoch(model, {self.val_loader})"]
            else:
                val = "val_loader" if f["form"] == "fit" else self.val_loader
                made += [f"val_loss, val_acc = evaluate({self.model}, {val})"]
        elif f["eval"] in ("each", "both"):
            made += self._inline_eval(self.model, "val_loader" if f["form"] == "fit" else self.val_loader)
        made += self._report(metric, f["eval"] in ("each", "both"))
        made += self._end_of_epoch()
        return made

    def _report(self, metric: bool, val: bool) -> Lines:
        f = self.f
        values = (
            [("loss", "train_loss")]
            + ([("metric", "train_metric")] if metric else [])
            + ([("val_loss", "val_loss")] if val else [])
        )
        match f["report"]:
            case "plain":
                return [f"print(epoch, {', '.join(name for _, name in values)})"]
            case "accelerator_print":
                return [f"accelerator.print(epoch, {', '.join(name for _, name in values)})"]
            case "dict":
                pairs = ", ".join(f'"{key}": {name}' for key, name in values)
                return [f'print({{"epoch": epoch, {pairs}}})']
            case "rounded":
                return [
                    "print('Epoch', epoch + 1, "
                    + ", ".join(f"'{key}:', round({name}, 4)" for key, name in values)
                    + ")"
                ]
            case "logging":
                return [
                    'logger.info("epoch %d loss %.5f", epoch, train_loss)',
                    'print(f"epoch {epoch} done")',
                ]
            case "table":
                pairs = ", ".join(f'"{key}": {name}' for key, name in values)
                return [f'history.append({{"epoch": epoch, {pairs}}})']
        text = " ".join(f"{key} {{{name}:.4f}}" for key, name in values)
        return [f'print(f"Epoch {{epoch + 1}}: {text}")']

    def _end_of_epoch(self) -> Lines:
        f, made = self.f, []
        watched = "val_loss" if f["eval"] in ("each", "both") else "train_loss"
        if f["schedule"] == "step_epoch":
            made.append(f"{self.scheduler}.step()")
        elif f["schedule"] == "plateau":
            made += [
                f"{self.scheduler}.step({watched})",
                f'print("lr", {self.optimizer}.param_groups[0]["lr"])',
            ]
        if f["log"] == "csv_open":
            made += ["writer.writerow([epoch, train_loss])", "log.flush()"]
        elif f["log"] == "logging_file":
            made.append('logger.info("%d %.5f", epoch, train_loss)')
        elif f["log"] in ("json", "csv", "numpy") and f["report"] != "table":
            made.append("history.append(train_loss)")
        made += self._saves_in_epoch()
        match f["best"]:
            case "loss" | "val":
                value = "val_loss" if f["best"] == "val" and f["eval"] in ("each", "both") else "train_loss"
                made += [
                    f"if {value} < best:",
                    f"    best = {value}",
                    f'    torch.save({self.model}.state_dict(), "best.pt")',
                    '    print("new best", epoch)',
                ]
            case "acc":
                made += [
                    "if train_metric > best_acc:",
                    "    best_acc = train_metric",
                    f'    torch.save({self.model}.state_dict(), "best.pt")',
                    '    print(f"saved {best_acc:.3f}")',
                ]
        match f["control"]:
            case "patience":
                made += lines(f"""
if {watched} < best_loss - 0.05:
    best_loss, bad_epochs = {watched}, 0
else:
    bad_epochs += 1
    if bad_epochs >= 1:
        print("early stopping at epoch", epoch)
        break
""")
            case "break_acc":
                made += ["if train_metric > 0.6:", '    print("target reached")', "    break"]
            case "max_steps":
                made += ["if step >= 13:", "    break"]
        return made

    def _saves_in_epoch(self) -> Lines:
        f = self.f
        model = f"accelerator.unwrap_model({self.model})" if self.accelerate else self.model
        match f["save"]:
            case "each":
                return [f'torch.save({model}.state_dict(), f"model_{{epoch}}.pt")']
            case "checkpoint":
                return [
                    f'torch.save({{"epoch": epoch, "model": {model}.state_dict(), "optimizer": {self.optimizer}.state_dict(), "loss": train_loss}}, "checkpoint.pt")'
                ]
        return []

    # ---- evaluation, ends ----

    @property
    def _eval_fn(self) -> bool:
        return self.f["eval_form"] == "function" or self.f["form"] == "run_epoch" or self.f["eval"] != "each"

    def _eval_loop(self, model: str, loader: str) -> Lines:
        self_model, self.model = self.model, model
        loss = self._loss_lines(model)
        self.model = self_model
        if self.task in ("regression", "pairs"):
            hits = "val_correct += 0"
        else:
            predicted = "(out > 0).float()" if self.task == "binary" else "out.argmax(-1)"
            hits = f"val_correct += ({predicted} == yb).sum().item()"
        if self.accelerate and self.task != "regression":
            hits = "preds, refs = accelerator.gather_for_metrics((out.argmax(-1), yb)); val_correct += (preds == refs).sum().item()"
        inner = [*self._unpack(), *loss, "val_total += loss.item() * len(xb)", "val_seen += len(xb)", hits]
        return [
            f"{model}.eval()",
            "val_total, val_seen, val_correct = 0.0, 0, 0",
            *under("with torch.no_grad():", under(f"for {self._target} in {loader}:", inner)),
        ]

    def _evaluate(self) -> Lines:
        f = self.f
        if f["eval"] == "none" or not self._eval_fn:
            return []
        if f["form"] == "run_epoch" and f["eval"] == "each":
            return []
        body = [
            *self._eval_loop("model", "loader"),
            "model.train()",
            "return val_total / val_seen, val_correct / val_seen",
        ]
        if f["form"] == "main":  # the function stands outside, so it is given what it needs
            names = [name for name in ("criterion", "device", "accelerator") if name in _names(body)]
            self.eval_extra = names
            return (
                [*under(f"def evaluate(model, loader{''.join(', ' + n for n in names)}):", body)]
                if not names
                else self._nested(body, names)
            )
        return under("def evaluate(model, loader):", body)

    def _nested(self, body: Lines, names: list[str]) -> Lines:
        made = under("def evaluate(model, loader):", body)
        if "criterion" in names:
            made = [f"criterion = {self._criterion()}", *made]
        if "device" in names:
            made = ['device = torch.device("cpu")', *made]
        if "accelerator" in names:
            self.use("from accelerate import Accelerator")
            made = ["accelerator = Accelerator()", *made]
        return made

    def _inline_eval(self, model: str, loader: str) -> Lines:
        return [
            *self._eval_loop(model, loader),
            "val_loss, val_acc = val_total / val_seen, val_correct / val_seen",
        ]

    def _after(self) -> Lines:
        f, made = self.f, []
        history = "history" in "\n".join(self._state())
        local = f["form"] in ("fit",)
        if f["eval"] in ("after", "both"):
            if self._eval_fn:
                made += [
                    f"val_loss, val_acc = evaluate(model, {self.val_loader})",
                    'print(f"final: {val_loss:.4f} {val_acc:.3f}")',
                ]
        if history and not local and f["form"] not in ("while", "iterator", "step_function"):
            if f["report"] == "table":
                self.use("import pandas as pd")
                made.append("print(pd.DataFrame(history))")
            match f["log"]:
                case "json":
                    self.use("import json")
                    made += ['with open("history.json", "w") as fh:', "    json.dump(history, fh)"]
                case "csv":
                    self.use("import pandas as pd")
                    made.append('pd.DataFrame(history).to_csv("history.csv", index=False)')
                case "numpy":
                    self.use("import numpy as np")
                    if f["report"] != "table":
                        made.append('np.save("history.npy", np.array(history))')
        made += self._last_saves()
        if f["ema"] != "none":
            made += ['torch.save(ema_model.state_dict(), "ema.pt")']
        if f["report"] == "expression" and f["form"] not in ("main", "class", "fit"):
            made.append("train_loss")
        return made

    def _last_saves(self) -> Lines:
        model = "accelerator.unwrap_model(model)" if self.accelerate else "model"
        match self.f["save"]:
            case "last":
                if self.hf_model:
                    return [f'{model}.save_pretrained("final")']
                return [f'torch.save({model}.state_dict(), "model.pt")']
            case "state_dir":
                self.use("import os")
                return [
                    'os.makedirs("ckpt", exist_ok=True)',
                    f'torch.save({model}.state_dict(), os.path.join("ckpt", "last.pt"))',
                    'print(sorted(os.listdir("ckpt")))',
                ]
            case "pickle_model":
                return [
                    f'torch.save({model}.state_dict(), "model.pt")',
                    f'{model}.load_state_dict(torch.load("model.pt"))',
                    'print("reloaded")',
                ]
            case "unwrap":
                return [
                    "accelerator.wait_for_everyone()",
                    "if accelerator.is_main_process:",
                    '    torch.save(accelerator.unwrap_model(model).state_dict(), "model.pt")',
                ]
        return []

    def _folds(self) -> Lines:
        self.use(
            "from sklearn.model_selection import KFold",
            "from torch.utils.data import DataLoader",
            "from torch.utils.data import Subset",
            "from torch.utils.data import TensorDataset",
        )
        state = ", random_state=0" if self.f["order"] == "zero_first" else ""
        _, call = self._loader_call()
        inner = [
            "train_ds = Subset(dataset, train_idx.tolist())",
            f"train_loader = {call}",
            "val_loader = DataLoader(Subset(dataset, val_idx.tolist()), batch_size=4)",
            *self._model(),
            *self._prepare(),
            *self._state(),
            *self._epochs("2", "train_loader"),
            "scores.append(train_loss)",
        ]
        return [
            "dataset = TensorDataset(X, y)",
            f"kf = KFold(n_splits=3, shuffle=True{state})",
            "scores = []",
            *under(
                "for fold, (train_idx, val_idx) in enumerate(kf.split(X)):", ['print("fold", fold)', *inner]
            ),
            'print(f"mean {sum(scores) / len(scores):.4f}")',
        ]


def _names(block: Lines) -> set[str]:
    import ast
    import textwrap

    source = textwrap.dedent("\n".join(block))
    try:
        tree = ast.parse(source)
    except (
        SyntaxError
    ):  # a break or return outside of its loop is no syntax error for ast, so this is one of ours
        raise ValueError(source) from None
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
