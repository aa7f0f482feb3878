"""Put a program around a Trainer of Transformers or TRL together from its features."""

# ruff: noqa: E501 (programs' text)

from __future__ import annotations

from differential.features import Features
from differential.text import Lines, indent, lines, under
from differential.trainer_extras import (
    ARGUMENTS,
    KEPT,
    KEPT_USES,
    LISTENERS,
    OVERRIDES_SHOW,
    Library,
    own_trainer,
)

VOCABULARY, CLASSES = 24, 3
_LLAMA = f"""
config = LlamaConfig(
    vocab_size={VOCABULARY}, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
    num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0,
)
"""
_BERT = f"""
config = BertConfig(
    vocab_size={VOCABULARY}, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=LABELS, max_position_embeddings=32,
)
"""


class TrainerProgram:
    """One program; `cells` are its notebook."""

    def __init__(self, features: Features) -> None:
        self.f = features
        self.task = features["task"]
        self.imports = {"import torch"}
        self.evaluates = features["eval"] != "none"
        self.library = Library(features["library"]) if features["library"] != "none" else None

    def use(self, *needed: str) -> None:
        self.imports.update(needed)

    @property
    def cells(self) -> list[str]:
        f = self.f
        body = [
            self._config(),
            self._seed(),
            [*self._rows(), *self._datasets()],
            self._files(),
            self._tokenizer() if f["task"] == "sft" or f["save"] == "tokenizer" else [],
            self._model_definition(),
            [*self._metrics(), *self._callback(), *self._collator(), *self._trainer_class()],
            [*self._listener(), *self._own_trainer()],
        ]
        run = [*self._model(), *self._trainer(), *self._train(), *self._after()]
        match f["form"]:
            case "function":
                last = [
                    [
                        *under(
                            "def train():",
                            [
                                *self._model(),
                                *self._trainer(),
                                *self._train(),
                                *self._after(),
                                "return trainer",
                            ],
                        )
                    ],
                    ["trainer = train()"],
                ]
            case "main":
                last = [under("def main():", run), under('if __name__ == "__main__":', ["main()"])]
            case "two_trainers":
                second = [
                    line.replace("trainer", "trainer2").replace('"out"', '"out2"')
                    for line in [*self._trainer(), *self._train()]
                ]
                last = [self._model(), self._trainer(), self._train(), second, self._after()]
            case "sweep":
                inner = [
                    *self._model(),
                    *self._trainer("lr"),
                    "result = trainer.train()",
                    "results[lr] = result.training_loss",
                    'print(f"lr {lr}: {result.training_loss:.4f}")',
                ]
                last = [
                    ["results = {}", *under("for lr in [1e-3, 1e-2]:", inner)],
                    ["best_lr = min(results, key=results.get)", 'print("best", best_lr)'],
                ]
            case _:
                last = [self._model(), self._trainer(), self._train(), self._after()]
        parts = [*body, *last]
        plain = sorted(line for line in self.imports if line.startswith("import"))
        head = [*plain, *sorted(self.imports - set(plain))]
        return ["\n".join(head), *("\n".join(part) for part in parts if part)]

    def _config(self) -> Lines:
        values = {"epochs": "2", "batch_size": self._batch, "lr": "5e-3"}
        match self.f["config"]:
            case "constants":
                return [f"{name.upper()} = {value}" for name, value in values.items()]
            case "dict":
                return ["CFG = {", *(f'    "{name}": {value},' for name, value in values.items()), "}"]
            case "class":
                return under("class Config:", [f"{name} = {value}" for name, value in values.items()])
        return []

    @property
    def _batch(self) -> str:
        return {"8": "4", "6": "6", "5": "5", "16": "8"}[self.f["batch"]]

    def value(self, name: str) -> str:
        literal = {"epochs": "2", "batch_size": self._batch, "lr": "5e-3"}[name]
        return {
            "literals": literal,
            "constants": name.upper(),
            "dict": f'CFG["{name}"]',
            "class": f"Config.{name}",
        }[self.f["config"]]

    def _seed(self) -> Lines:
        match self.f["seed"]:
            case "none":
                return []
            case "set_seed":
                self.use("from transformers import set_seed")
                return ["set_seed(42)"]
            case "function":
                self.use("import random", "import numpy as np")
                return [
                    *under(
                        "def seed_everything(seed=42):",
                        ["random.seed(seed)", "np.random.seed(seed)", "torch.manual_seed(seed)"],
                    ),
                    "",
                    "seed_everything()",
                ]
        self.use("import random", "import numpy as np")
        return ["random.seed(0)", "np.random.seed(0)", "torch.manual_seed(0)"]

    def _files(self) -> Lines:
        match self.f["filework"]:
            case "makedirs" | "pathlib":
                self.use("import os")
                return ['os.makedirs("outputs", exist_ok=True)']
            case "mkdir_try" | "rmtree_try":
                self.use("import os")
                return ["try:", '    os.mkdir("outputs")', "except FileExistsError:", "    pass"]
            case "remove_try" | "remove_suppress":
                self.use("import os", "from contextlib import suppress")
                return ["with suppress(FileNotFoundError):", '    os.remove("train.log")']
            case "rmtree":
                self.use("import shutil")
                return ['shutil.rmtree("out", ignore_errors=True)']
        return []

    # ---- data ----

    def _rows(self) -> Lines:
        n = int(self.f["n"]) + int(self.f["eval_n"])
        if self.library:
            self.use(*self.library.imports)
            return self.library.data(int(self.f["n"]), int(self.f["eval_n"]))
        match self.f["source"]:
            case "numpy":
                self.use("import numpy as np")
                made = [f"ids = np.random.randint(1, {VOCABULARY}, ({n}, 10)).tolist()"]
            case "lists":
                self.use("import random")
                made = [
                    f"ids = [[random.randint(1, {VOCABULARY - 1}) for _ in range(10)] for _ in range({n})]"
                ]
            case _:
                made = [f"ids = torch.randint(1, {VOCABULARY}, ({n}, 10)).tolist()"]
        match self.task:
            case "bert" | "bert_lora":
                return [
                    *made,
                    f'rows = [{{"input_ids": x, "labels": (x[0] + x[1]) % {CLASSES}}} for x in ids]',
                ]
            case "regression":
                return [*made, 'rows = [{"input_ids": x, "labels": float(x[0]) / 10} for x in ids]']
            case "token_cls":
                return [
                    *made,
                    f'rows = [{{"input_ids": x, "labels": [-100 if j > i % 8 + 1 else t % {CLASSES} for j, t in enumerate(x)]}} for i, x in enumerate(ids)]',
                ]
            case "sft":
                return [
                    *made,
                    'rows = [{"text": " ".join(f"w{t}" for t in x[: 4 + i % 6])} for i, x in enumerate(ids)]',
                ]
        return [
            *made,
            'rows = [{"input_ids": x, "labels": [-100] * (i % 6) + x[i % 6 :]} for i, x in enumerate(ids)]',
        ]

    def _datasets(self) -> Lines:
        if self.library:
            return []
        n = self.f["n"]
        made = [f"train_rows, eval_rows = rows[:{n}], rows[{n}:]"]
        match self.f["trainer_data"]:
            case "hf":
                self.use("from datasets import Dataset")
                return [
                    *made,
                    "train_ds = Dataset.from_list(train_rows)",
                    "eval_ds = Dataset.from_list(eval_rows)",
                ]
            case "dicts":
                return [*made, "train_ds, eval_ds = train_rows, eval_rows"]
            case "iterable":
                self.use("from torch.utils.data import IterableDataset")
                body = lines("""
def __init__(self, rows):
    self.rows = rows

def __iter__(self):
    yield from self.rows
""")
                return [
                    *made,
                    "",
                    *under("class Stream(IterableDataset):", body),
                    "",
                    "train_ds, eval_ds = Stream(train_rows), eval_rows",
                ]
        self.use("from torch.utils.data import Dataset as TorchDataset")
        body = lines("""
def __init__(self, rows):
    self.rows = rows

def __len__(self):
    return len(self.rows)

def __getitem__(self, i):
    return {k: torch.tensor(v) for k, v in self.rows[i].items()}
""")
        return [
            *made,
            "",
            *under("class Rows(TorchDataset):", body),
            "",
            "train_ds, eval_ds = Rows(train_rows), Rows(eval_rows)",
        ]

    def _tokenizer(self) -> Lines:
        self.use(
            "from tokenizers import Tokenizer, models, pre_tokenizers",
            "from transformers import PreTrainedTokenizerFast",
        )
        return lines(f"""
vocab = {{"<pad>": 0, "<eos>": {VOCABULARY}, "<unk>": {VOCABULARY + 1}, **{{f"w{{i}}": i for i in range(1, {VOCABULARY})}}}}
raw = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
""")

    # ---- model ----

    def _model_definition(self) -> Lines:
        if self.library:
            return []
        if self.task in ("llama", "llama_lora", "sft"):
            self.use("from transformers import LlamaConfig, LlamaForCausalLM")
            drawn = "\n    attention_dropout=0.1," if self.f["dropout"] == "yes" else ""
            return lines(
                _LLAMA.replace(f"vocab_size={VOCABULARY},", f"vocab_size={VOCABULARY + 2},{drawn}", 1)
            )
        name = "BertForTokenClassification" if self.task == "token_cls" else "BertForSequenceClassification"
        self.use(f"from transformers import BertConfig, {name}")
        text = _BERT.replace("LABELS", "1" if self.task == "regression" else str(CLASSES))
        if self.f["dropout"] == "yes":
            text = text.replace("hidden_dropout_prob=0.0", "hidden_dropout_prob=0.1")
        return lines(text)

    def _model(self) -> Lines:
        if self.library:
            return self.library.model()
        name = {
            "llama": "LlamaForCausalLM",
            "llama_lora": "LlamaForCausalLM",
            "sft": "LlamaForCausalLM",
            "token_cls": "BertForTokenClassification",
        }
        made = [f"model = {name.get(self.task, 'BertForSequenceClassification')}(config)"]
        if self.task.endswith("_lora"):
            self.use("from peft import LoraConfig, get_peft_model")
            targets = '["q_proj", "v_proj"]' if self.task == "llama_lora" else '["query", "value"]'
            kind = "CAUSAL_LM" if self.task == "llama_lora" else "SEQ_CLS"
            made += [
                f'lora = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules={targets}, task_type="{kind}")',
                "model = get_peft_model(model, lora)",
                "model.print_trainable_parameters()",
            ]
        return made

    # ---- Trainer ----

    def _metrics(self) -> Lines:
        self.use("import numpy as np") if self.f["metrics"] != "none" else None
        if self.f["metrics"] == "accuracy":
            return under(
                "def compute_metrics(eval_pred):",
                [
                    "logits, labels = eval_pred",
                    'return {"accuracy": float((np.argmax(logits, axis=-1) == labels).mean())}',
                ],
            )
        if self.f["metrics"] == "loss_free":
            return under(
                "def compute_metrics(p):",
                ['return {"mean_logit": float(np.mean(p.predictions)), "rows": len(p.predictions)}'],
            )
        return []

    def _callback(self) -> Lines:
        kind = self.f["callback"]
        if kind == "early":
            self.use("from transformers import EarlyStoppingCallback")
            return []
        body = {
            "printer": [
                "def on_log(self, args, state, control, logs=None, **kwargs):",
                '    if "loss" in logs:',
                '        print(state.global_step, logs["loss"])',
            ],
            "stop_loss": [
                "def on_log(self, args, state, control, logs=None, **kwargs):",
                '    if logs.get("loss", 9) < 1.05 and state.global_step > 3:',
                "        control.should_training_stop = True",
            ],
            "lr_log": [
                "def on_step_end(self, args, state, control, optimizer=None, **kwargs):",
                '    print("lr", optimizer.param_groups[0]["lr"])',
            ],
            "file": [
                "def on_log(self, args, state, control, logs=None, **kwargs):",
                '    with open("losses.txt", "a") as fh:',
                "        fh.write(f\"{state.global_step} {logs.get('loss')}\\n\")",
            ],
            "history": [
                "def __init__(self):",
                "    self.losses = []",
                "",
                "def on_log(self, args, state, control, logs=None, **kwargs):",
                '    if "loss" in logs:',
                '        self.losses.append(logs["loss"])',
                "",
                "def on_train_end(self, args, state, control, **kwargs):",
                '    print("min loss", min(self.losses))',
            ],
        }.get(kind)
        if body is None:
            return []
        self.use("from transformers import TrainerCallback")
        return [*under("class MyCallback(TrainerCallback):", body), ""]

    def _collator(self) -> Lines:
        if self.f["collator"] != "custom":
            return []
        ints = "torch.float32" if self.task == "regression" else "torch.long"
        return [
            *under(
                "def collate(rows):",
                [
                    'batch = {"input_ids": torch.stack([torch.as_tensor(r["input_ids"]) for r in rows])}',
                    'batch["attention_mask"] = torch.ones_like(batch["input_ids"])',
                    f'batch["labels"] = torch.stack([torch.as_tensor(r["labels"], dtype={ints}) for r in rows])',
                    "return batch",
                ],
            ),
            "",
        ]

    def _listener(self) -> Lines:
        if self.f["listener"] == "none":
            return []
        self.use("from transformers import TrainerCallback")
        return [*under("class Listener(TrainerCallback):", lines(LISTENERS[self.f["listener"]])), ""]

    def _own_trainer(self) -> Lines:
        override, kept = self.f["override"], self.f["kept"]
        if override == kept == "none":
            return []
        if kept in KEPT_USES:
            self.use(KEPT_USES[kept])
        if self._base == "Trainer":
            self.use("from transformers import Trainer")
        return own_trainer(self._base, override, kept)

    @property
    def _class(self) -> str:
        return "OwnTrainer" if self.f["override"] != "none" or self.f["kept"] != "none" else self._base

    @property
    def _base(self) -> str:
        if self.library:
            return self.library.trainer
        own = self.f["compute_loss"] in ("weighted", "own_ce", "distil")
        return "MyTrainer" if own else "SFTTrainer" if self.task == "sft" else "Trainer"

    def _trainer_class(self) -> Lines:
        kind = self.f["compute_loss"]
        if kind not in ("weighted", "own_ce", "distil"):
            return []
        self.use("from transformers import Trainer", "import torch.nn.functional as F")
        weight = ", weight=torch.tensor([1.0, 3.0, 0.3])" if kind == "weighted" else ""
        body = ['labels = inputs["labels"]', "outputs = model(**inputs)"]
        body.append(
            f"loss = F.cross_entropy(outputs.logits.reshape(-1, {CLASSES}), labels.reshape(-1){weight})"
        )
        if kind == "distil":
            body += [
                "penalty = outputs.logits.pow(2).mean()",
                "loss = loss + 0.1 * penalty",
                'self.log({"penalty": penalty.item()})',
            ]
        body.append("return (loss, outputs) if return_outputs else loss")
        return [
            *under(
                "class MyTrainer(Trainer):",
                under(
                    "def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):",
                    body,
                ),
            ),
            "",
        ]

    def _trainer(self, lr: str | None = None) -> Lines:
        f = self.f
        sft = self.task == "sft"
        config = self.library.config if self.library else "SFTConfig" if sft else "TrainingArguments"
        if not self.library:
            where = "trl import SFTConfig, SFTTrainer" if sft else "transformers import TrainingArguments"
            self.use(f"from {where}")
        if self._class == "Trainer":
            self.use("from transformers import Trainer")
        steps = {"1": "1", "3": "3", "2": "2", "4": "4"}[f["accumulation"]]
        given = [
            'output_dir="out"',
            f"per_device_train_batch_size={self.value('batch_size')}",
            f"learning_rate={lr or self.value('lr')}",
        ]
        if steps != "1":
            given.append(f"gradient_accumulation_steps={steps}")
        given.append("max_steps=10" if f["length"] == "steps" else f"num_train_epochs={self.value('epochs')}")
        given.append(
            'logging_strategy="epoch"' if f["logging"] == "epoch" else f"logging_steps={f['logging']}"
        )
        if f["eval"] == "epoch":
            given += ['eval_strategy="epoch"', "per_device_eval_batch_size=4"]
        elif f["eval"] == "steps":
            given += ['eval_strategy="steps"', "eval_steps=3"]
        if f["best"] == "yes":
            given += [
                'save_strategy="epoch"',
                "load_best_model_at_end=True",
                'metric_for_best_model="eval_loss"',
                "greater_is_better=False",
            ]
        elif f["resume"] == "yes":
            given += ['save_strategy="steps"', "save_steps=4"]
        else:
            given.append('save_strategy="no"')
        given += ARGUMENTS.get(f["arguments"], [])
        if f["compute_loss"] == "smoothing_arg":
            given.append("label_smoothing_factor=0.1")
        if f["optim"] == "sgd":
            given.append('optim="sgd"')
        if f["clip"] == "none":
            given.append("max_grad_norm=0.0")
        given += ['report_to="none"', "use_cpu=True", "disable_tqdm=True", "seed=0"]
        if self.library:
            given += self.library.arguments
        if sft:
            given += ["max_length=16", "bf16=False"]  # SFTConfig's own default, whose rounding hides all else
        made = [f"args = {config}(", *indent([f"{item}," for item in given]), ")"]
        call = ["model=model", "args=args", "train_dataset=train_ds"]
        if self.evaluates or f["predict"] == "yes":
            call.append("eval_dataset=eval_ds")
        if f["metrics"] != "none":
            call.append("compute_metrics=compute_metrics")
        if f["collator"] == "custom":
            call.append("data_collator=collate")
        if sft:
            call.append("processing_class=tokenizer")
        if self.library:
            call += self.library.call
        heard = ["Listener()"] if f["listener"] != "none" else []
        if f["callback"] == "early":
            heard.append("EarlyStoppingCallback(early_stopping_patience=1)")
        elif f["callback"] != "none":
            heard.append("MyCallback()")
        if heard:
            call.append(f"callbacks=[{', '.join(heard)}]")
        if f["optim"] == "passed":
            made += [
                "optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)",
                "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.5)",
            ]
            call.append("optimizers=(optimizer, scheduler)")
        return [*made, f"trainer = {self._class}(", *indent([f"{item}," for item in call]), ")"]

    def _train(self) -> Lines:
        f, made = self.f, []
        if f["eval"] in ("before", "before_after"):
            made += ["before = trainer.evaluate()", "print(f\"loss before {before['eval_loss']:.4f}\")"]
        match f["report"]:
            case "metrics":
                made += [
                    "result = trainer.train()",
                    'print("training loss", result.training_loss)',
                    'print(result.metrics["train_loss"], result.global_step)',
                ]
            case "history":
                made += [
                    "trainer.train()",
                    "for entry in trainer.state.log_history:",
                    '    if "loss" in entry:',
                    '        print(entry["step"], entry["loss"])',
                ]
            case "logs":
                made += [
                    "trainer.train()",
                    'losses = [e["loss"] for e in trainer.state.log_history if "loss" in e]',
                    'print(f"mean {sum(losses) / len(losses):.4f} last {losses[-1]:.4f}")',
                ]
            case _:
                made += ["trainer.train()"]
        if f["resume"] == "yes":
            made += [*self._model(), *self._trainer(), "trainer.train(resume_from_checkpoint=True)"]
            made.append('print("resumed to", trainer.state.global_step)')
        if f["override"] in OVERRIDES_SHOW:
            made.append(OVERRIDES_SHOW[f["override"]])
        if f["kept"] != "none":
            made.append(f'print("kept", {KEPT[f["kept"]][2]})')
        if f["eval"] in ("after", "before_after"):
            made += [
                "metrics = trainer.evaluate()",
                "print({k: round(v, 4) for k, v in metrics.items() if k.startswith('eval_') and 'runtime' not in k and 'per_second' not in k})",
            ]
        if f["predict"] == "yes" and self.task != "sft":
            made += [
                "pred = trainer.predict(eval_ds)",
                "print(pred.predictions.shape, float(abs(pred.predictions).mean()))",
            ]
        if f["report"] == "expression" and f["form"] == "plain":
            made.append("trainer.state.global_step")
        return made

    def _after(self) -> Lines:
        match self.f["save"]:
            case "save_model":
                return ['trainer.save_model("final")']
            case "save_pretrained":
                return ['model.save_pretrained("final")']
            case "state":
                return ["trainer.save_state()", 'torch.save(model.state_dict(), "model.pt")']
            case "save_load":
                name = {"llama": "LlamaForCausalLM", "token_cls": "BertForTokenClassification"}
                name = name.get(self.task, "BertForSequenceClassification")
                if self.task.endswith("_lora") or self.task == "sft":
                    return ['trainer.save_model("final")', 'print("saved")']
                return [
                    'trainer.save_model("final")',
                    f'again = {name}.from_pretrained("final")',
                    "print(sum(p.abs().sum().item() for p in again.parameters()))",
                ]
            case "tokenizer":
                return ['model.save_pretrained("final")', 'tokenizer.save_pretrained("final")']
        return []
