"""The data of a hand-written loop: arrays, datasets, loaders."""

# ruff: noqa: E501 (programs' text)

from __future__ import annotations

from differential.loop_base import CLASSES, EXTRA, VOCABULARY, LoopBase, needs_validation
from differential.text import Lines, lines, under


class LoopData(LoopBase):
    """Where the batches come from."""

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
