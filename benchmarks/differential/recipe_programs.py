"""Put a program around a recipe of `recipes.py` together from its features."""

from __future__ import annotations

import re

from differential.features import Features
from differential.recipes import RECIPES, STATE, STATE_USES
from differential.text import Lines, lines, under


class RecipeProgram:
    """One program; `cells` are its notebook."""

    def __init__(self, features: Features) -> None:
        self.f = features
        self.recipe = RECIPES[features["task"]]
        self.imports = {"import torch", "from torch import nn", "import torch.nn.functional as F"}
        self.imports |= {"import random", "import numpy as np", *self.recipe.uses}
        self.imports.add("from torch.utils.data import DataLoader, TensorDataset")
        self.first = self.recipe.trained[0]
        self.text = "\n".join([self.recipe.made, self.recipe.step])

    @property
    def cells(self) -> list[str]:
        made = [
            ["random.seed(0)", "np.random.seed(0)", "torch.manual_seed(0)"],
            self._data(),
            lines(self._filled(self.recipe.models)),
            [*lines(self.recipe.made), *self._extras()],
            self._functions(),
            self._train(),
            self._after(),
        ]
        if self.f["form"] == "main":
            body = [*made[3], *self._train(), *self._after()]
            made[3:] = [under("def main():", body), under('if __name__ == "__main__":', ["main()"])]
        plain = sorted(line for line in self.imports if line.startswith("import"))
        head = [*plain, *sorted(self.imports - set(plain))]
        return ["\n".join(head), *("\n".join(part) for part in made if part)]

    def _data(self) -> Lines:
        n = int(self.f["n"])
        made = [
            f"X = torch.randn({n + 13}, 8)",
            "y = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()",
            f"X_val, y_val = X[{n}:], y[{n}:]",
            f"X, y = X[:{n}], y[:{n}]",
        ]
        last = ", drop_last=True" if self.f["drop_last"] == "yes" else ""
        loader = f"train_loader = DataLoader(TensorDataset(X, y), batch_size={self.f['batch']}, shuffle=True{last})"
        return [*made, loader]

    def _filled(self, text: str) -> str:
        """The recipe's words in PyTorch's."""
        text = text.replace("DROPOUT", "0.2" if self.f["dropout"] == "yes" else "0.0")
        text = re.sub(r"ZERO\((\w+)\)", r"\1.zero_grad()", text)
        text = re.sub(r"STEP\((\w+)\)", r"\1.step()", text)
        return re.sub(r"BACK\((\w+)\)", r"\1.backward()", text)

    def _step(self) -> Lines:
        text = self._filled(self.recipe.step)
        if self.f["clip"] == "norm":
            clip = f"torch.nn.utils.clip_grad_norm_({self.first}.parameters(), 0.5)"
            text = text.replace("\noptimizer.step()", f"\n{clip}\noptimizer.step()")
        return lines(text)

    @property
    def _optimizer(self) -> str:
        found = re.search(r"^(optimizer|opt_\w) = ", self.text, re.M)
        return found[1] if found else ""

    def _extras(self) -> Lines:
        made: Lines = []
        if self.f["schedule"] == "cosine" and self._optimizer:
            made.append(
                f"scheduler = torch.optim.lr_scheduler.CosineAnnealingLR({self._optimizer}, T_max=12)"
            )
        elif self.f["schedule"] == "closure" and self._optimizer:
            made += [
                "def decay(epochs):",
                "    return lambda epoch: 1.0 - epoch / (epochs + 1)",
                "",
                f"scheduler = torch.optim.lr_scheduler.LambdaLR({self._optimizer}, decay(3))",
            ]
        kind = self.f["state"]
        if kind in STATE_USES:
            self.imports.add(STATE_USES[kind])
        if kind != "none":
            made += lines(STATE[kind][0].replace("first", self.first))
        return made

    def _batch(self) -> Lines:
        """What one batch goes through in the loop."""
        made = ["loss = train_step(xb, yb)"] if self.f["form"] in ("function", "factory") else self._step()
        if self.f["form"] == "class":
            made = ["loss = self.step(xb, yb)"]
        if self.f["state"] != "none":
            made += lines(STATE[self.f["state"]][1].replace("first", self.first))
        if self.f["print"] == "step":
            made += ['print(f"{epoch} {float(loss):.4f}")']
        return [*made, "total += float(loss) * len(xb)"]

    def _functions(self) -> Lines:
        step = [*self._step(), "return loss"]
        match self.f["form"]:
            case "function":
                return under("def train_step(xb, yb):", step)
            case "factory":
                made = under("def step(xb, yb):", step)
                return [
                    *under("def make_train_step():", [*made, "return step"]),
                    "",
                    "train_step = make_train_step()",
                ]
            case "class":
                return under(
                    "class Loop:",
                    [
                        *under("def __init__(self, loader):", ["self.loader, self.history = loader, []"]),
                        "",
                        *under("def step(self, xb, yb):", step),
                        "",
                        *under("def run(self, epochs, start=0):", self._epochs("self.loader")),
                    ],
                )
        return []

    def _epochs(self, loader: str) -> Lines:
        names = self.recipe.trained
        inner = [f"{name}.train()" for name in names]
        inner += ["total = 0.0", *under(f"for xb, yb in {loader}:", self._batch())]
        inner += [f"epoch_loss = total / {int(self.f['n'])}", *self._evaluated()]
        if self.f["schedule"] != "none" and self._optimizer:
            inner.append("scheduler.step()")
        if self.f["form"] == "class":
            inner.append("self.history.append(epoch_loss)")
        inner.append('print(f"epoch {epoch}: {epoch_loss:.4f}")')
        if self.f["save"] in ("best", "each"):
            inner += self._saved_in_epoch()
        if self.f["stop"] == "patience":
            inner += ["if epoch > 0 and epoch_loss > 0.9 * last_loss:", '    print("stopped")', "    break"]
            inner.append("last_loss = epoch_loss")
        start = ["last_loss = 1e9"] if self.f["stop"] == "patience" else []
        if self.f["save"] == "best":
            start.append('best = float("inf")')
        count = "start, epochs" if self.f["form"] == "class" else "3"
        return [*start, *under(f"for epoch in range({count}):", inner)]

    def _saved_in_epoch(self) -> Lines:
        save = f'torch.save({self.first}.state_dict(), "best.pt")'
        if self.f["save"] == "each":
            return [save.replace('"best.pt"', 'f"epoch{epoch}.pt"')]
        return ["if epoch_loss < best:", "    best = epoch_loss", f"    {save}"]

    def _evaluated(self) -> Lines:
        names, scores = self.recipe.trained, self.recipe.scores
        modes = [f"{name}.eval()" for name in names]
        match self.f["eval"]:
            case "whole":
                inner = [f"scores = {scores}", 'print("val", round(scores.abs().mean().item(), 4))']
                return [*modes, *under("with torch.no_grad():", inner)]
            case "argmax":
                inner = [f"hits = ({scores}.argmax(-1) == y_val).float().mean().item()"]
                return [*modes, *under("with torch.no_grad():", inner), 'print(f"val acc {hits:.3f}")']
            case "single":
                one = scores.replace("X_val", "X_val[i : i + 1]")
                inner = [
                    f"values = [({one}).abs().sum().item() for i in range(len(X_val))]",
                    'print("val", round(sum(values), 3))',
                ]
                return [*modes, *under("with torch.inference_mode():", inner)]
        return []

    def _train(self) -> Lines:
        if self.f["form"] == "class":
            made = ["loop = Loop(train_loader)", "loop.run(3)", "print(loop.history)"]
        else:
            made = self._epochs("train_loader")
        if self.f["resume"] == "yes":
            made += self._resumed()
        return made

    def _resumed(self) -> Lines:
        names = self.recipe.trained
        keys = [*names, *([self._optimizer] if self._optimizer else [])]
        state = ", ".join(f'"{name}": {name}.state_dict()' for name in keys)
        made = [f'torch.save({{{state}}}, "checkpoint.pt")', 'state = torch.load("checkpoint.pt")']
        made += [f'{name}.load_state_dict(state["{name}"])' for name in keys]
        if self.f["form"] == "class":
            return [*made, "loop.run(1)"]
        again = under("for xb, yb in train_loader:", self._batch())
        return [*made, "epoch, total = 3, 0.0", *again, "print(total)"]

    def _after(self) -> Lines:
        made: Lines = []
        if self.f["state"] != "none":
            made.append(f"print({STATE[self.f['state']][2].replace('first', self.first)})")
        if self.f["save"] in ("last", "best"):
            made += [
                f'torch.save({name}.state_dict(), "model{i}.pt")'
                for i, name in enumerate(self.recipe.trained)
            ]
        return made
