"""The model of a hand-written loop, its optimizer, criterion and scheduler."""

# ruff: noqa: E501 (programs' text)

from __future__ import annotations

from differential.loop_base import CLASSES, VOCABULARY, needs_validation
from differential.loop_data import LoopData
from differential.text import Lines, lines, under

TEACHER = "teacher = nn.Linear(8, 3).eval()"


class LoopModel(LoopData):
    """What is trained."""

    def _model_class(self) -> Lines:
        return [*self._net_class(), *self._class_with_loss(), *self._class_whose_rows_meet()]

    def _class_with_loss(self) -> Lines:
        """A model that computes its own loss, for which rows may count differently."""
        if not self.has_own_loss:
            return []
        first = "x.flatten(1)[:, 0].float()"
        keep = f"keep = {first} < {0.8 * VOCABULARY if self.task == 'tokens' else 1.2}"
        each = 'losses = F.cross_entropy(out, y, reduction="none")'
        masked = "(losses * keep).sum() / keep.sum().clamp(min=1)"
        loss = {
            "mean": ["loss = F.cross_entropy(out, y)"],
            "class_weights": ["loss = F.cross_entropy(out, y, weight=self.weights)"],
            "ignored": ["loss = F.cross_entropy(out, y, ignore_index=2)"],
            "row_mask": [keep, each, f"loss = {masked}"],
            "row_weights": [
                f"weights = 1 + {first}.abs()",
                each,
                "loss = (losses * weights).sum() / weights.sum()",
            ],
            "selected": [keep, each, "loss = losses[keep].mean() if keep.any() else 0 * out.sum()"],
            "two": [keep, each, f"loss = losses.mean() + 0.1 * {masked}"],
        }[self.f["own_loss"]]
        return [
            "",
            "class WithLoss(nn.Module):",
            "    def __init__(self, net):",
            "        super().__init__()",
            "        self.net = net",
            '        self.register_buffer("weights", torch.tensor([1.0, 1.0, 4.0]))',
            "",
            "    def forward(self, x, y=None):",
            "        out = self.net(x)",
            "        if y is None:",
            "            return out",
            *(f"        {line}" for line in loss),
            "        return out, loss",
        ]

    def _class_whose_rows_meet(self) -> Lines:
        """A model whose output for a row depends on the other rows, late or under a condition; or is no call."""
        kind = self.f["rows_meet"]
        if kind == "no":
            return []
        if kind == "numpy":
            self.use("import numpy as np")
        mixed = "out = out - out.mean(0)"
        body = {
            "counter": ["self.calls += 1", "if self.calls > 5:", f"    {mixed}"],
            "gate": ["out = out + self.gate * out.mean(0)"],
            "outside": ["seen_batches.append(len(x))", "if len(seen_batches) > 6:", f"    {mixed}"],
            "numpy": ["if np.random.rand() < 0.3:", f"    {mixed}"],
            "number": ["self.scale = out.detach().abs().mean().item()", "out = out / (1 + self.scale)"],
            "grad_mode": ["if torch.is_grad_enabled():", "    out = out + 0.1 * out.mean(0)"],
            "noise": ["if self.training:", "    out = out + 0.01 * torch.randn_like(out)"],
            "method": [],
        }[kind]
        name = "predict" if kind == "method" else "forward"
        return [
            "",
            *(["seen_batches = []"] if kind == "outside" else []),
            "class Mixed(nn.Module):",
            "    def __init__(self, net):",
            "        super().__init__()",
            "        self.net, self.calls, self.scale = net, 0, 1.0",
            "        self.gate = nn.Parameter(torch.zeros(1))",
            "",
            f"    def {name}(self, x):",
            "        out = self.net(x)",
            *(f"        {line}" for line in body),
            "        return out",
        ]

    def _net_class(self) -> Lines:
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
        if self.f["rows_meet"] != "no":
            return f"Mixed({self._make_net()})"
        return f"WithLoss({self._make_net()})" if self.has_own_loss else self._make_net()

    def _make_net(self) -> str:
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
        match f["wrapper"]:
            case "data_parallel":
                made.append("model = nn.DataParallel(model)")
            case "data_parallel_function":
                wraps = under("def on_all_gpus(net):", ["return nn.DataParallel(net, device_ids=[0])"])
                made += [*wraps, "", "model = on_all_gpus(model)"]
            case "counted":
                made += ["if torch.cuda.device_count() > 1:", "    model = torch.nn.DataParallel(model)"]
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
        if f["loss"] == "teacher":
            made.append(TEACHER)
        if f["control"] == "unfreeze":
            made += [
                "frozen = list(model.parameters())[:1]",
                "for p in frozen:",
                "    p.requires_grad = False",
            ]
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
