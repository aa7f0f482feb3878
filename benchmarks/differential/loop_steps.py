"""One step of a hand-written loop, and what it counts."""

from __future__ import annotations

from differential.loop_base import VOCABULARY
from differential.loop_model import LoopModel
from differential.text import Lines, indent, lines, under


class LoopSteps(LoopModel):
    """Forward, backward, update, metrics."""

    def _call(self, model: str, x: str = "xb") -> str:
        if self.f["rows_meet"] == "method":
            return f"{model}.predict({x})"
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
        if self.has_own_loss:
            return [f"out, loss = {model}(xb, yb)"]
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
            case "teacher":
                return [
                    *made,
                    "with torch.no_grad():",
                    "    target = teacher(xb).softmax(-1)",
                    'kd = F.kl_div(F.log_softmax(out, dim=-1), target, reduction="batchmean")',
                    f"loss = {base}) + 0.5 * kd",
                ]
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
    def _too_far(self) -> str:
        """What is true of a few batches and never of a whole epoch, after which there would be no loss."""
        if self.task in ("tokens", "lm"):
            return "xb[:, :2].sum(1).max() > 43"
        values = int(self.f["batch"]) * (64 if self.task == "image" else 8)
        limit = 2.8 if values <= 64 else 3.4 if values <= 128 else 3.7 if values <= 512 else 4.0
        if self.f["source"] == "sklearn":
            limit = 5.0
        return f"xb.abs().max() > {limit}"

    @property
    def _target(self) -> str:
        return "batch" if self.rows else "xb, yb"

    def _body(self) -> Lines:
        """What one batch goes through, after it has been unpacked."""
        f = self.f
        made: Lines = []
        accumulating = f["accumulation"] not in ("none", "context")
        if f["control"] == "skip":
            made += [f"if {self._too_far}:  # too far out", "    continue"]
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
        return made + {
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
