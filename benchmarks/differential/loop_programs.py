"""Put a hand-written training loop together, in plain PyTorch or on Accelerate, from its features."""

from __future__ import annotations

from differential.loop_forms import LoopForms
from differential.text import Lines, under


class LoopProgram(LoopForms):
    """One program; `cells` are its notebook."""

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
