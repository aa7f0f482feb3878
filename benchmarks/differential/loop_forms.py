"""The forms of a hand-written loop: functions, classes, while, iterators, phases."""

from __future__ import annotations

from differential.loop_base import names_in, needs_validation
from differential.loop_reports import LoopReports
from differential.text import Lines, indent, under


class LoopForms(LoopReports):
    """The loop around the steps."""

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
        counts = "i" in names_in(body)
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
        form = self.f["form"]
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
        if f["log"] == "logging_file" or f["report"] == "logging":
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
