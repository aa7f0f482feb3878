"""What a hand-written loop evaluates, prints, logs and saves."""

# ruff: noqa: E501 (programs' text)

from __future__ import annotations

from differential.loop_base import names_in
from differential.loop_model import TEACHER
from differential.loop_steps import LoopSteps
from differential.text import Lines, lines, under


class LoopReports(LoopSteps):
    """After an epoch and after the training."""

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
            case "unfreeze":
                made += ["if epoch == 0:", "    for p in frozen:", "        p.requires_grad = True"]
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
            outside = ("criterion", "device", "accelerator", "teacher")
            names = [name for name in outside if name in names_in(body)]
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
        if "teacher" in names:
            made = [TEACHER, *made]
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
        if f["eval"] in ("after", "both") and self._eval_fn:
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
        if f["control"] == "exit_after" and f["form"] in ("for", "enumerate", "function"):
            self.use("import sys")
            made += ["if train_loss > 50:", '    print("diverged")', "    sys.exit(1)"]
        if f["report"] == "expression" and f["form"] not in ("main", "class", "fit"):
            made.append("train_loss")
        return made

    def _last_saves(self) -> Lines:
        model = "accelerator.unwrap_model(model)" if self.accelerate else "model"
        wrapped = self.f["wrapper"].startswith("data_parallel")
        match self.f["save"]:
            case "last":
                if self.hf_model and self.f["wrapper"] == "counted":
                    return [
                        'to_save = model.module if hasattr(model, "module") else model',
                        'to_save.save_pretrained("final")',
                    ]
                if self.hf_model:
                    return [f'{model}{".module" if wrapped else ""}.save_pretrained("final")']
                if wrapped:
                    return ['torch.save(model.module.state_dict(), "model.pt")']
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
