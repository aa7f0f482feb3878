"""What a program around a Trainer may have beside it: other libraries' Trainers, overridden methods, listeners.

Each is data: a feature's value and its code.
"""

# ruff: noqa: E501 (programs' text)

from __future__ import annotations

from differential.text import Lines, indent, lines, under

# methods that a notebook's own Trainer overrides
OVERRIDES = {
    "training_step": """
def training_step(self, *args, **kwargs):
    loss = super().training_step(*args, **kwargs)
    self.steps_seen = getattr(self, "steps_seen", 0) + 1
    self.sum_seen = getattr(self, "sum_seen", 0.0) + loss.item()
    return loss
""",
    "sampler": """
def _get_train_sampler(self, *args, **kwargs):
    return torch.utils.data.SequentialSampler(self.train_dataset)
""",
    "dataloader": """
def get_train_dataloader(self):
    return torch.utils.data.DataLoader(
        self.train_dataset, batch_size=self.args.per_device_train_batch_size, shuffle=True, collate_fn=self.data_collator
    )
""",
    "optimizer": """
def create_optimizer(self, *args, **kwargs):
    if self.optimizer is None:
        groups = [{"params": [p for p in self.model.parameters() if p.requires_grad and p.dim() > 1]}]
        groups.append({"params": [p for p in self.model.parameters() if p.requires_grad and p.dim() <= 1], "lr": 1e-3})
        self.optimizer = torch.optim.SGD(groups, lr=0.02, momentum=0.9)
    return self.optimizer
""",
    "scheduler": """
def create_scheduler(self, num_training_steps, optimizer=None):
    optimizer = optimizer or self.optimizer
    self.lr_scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=num_training_steps + 1)
    return self.lr_scheduler
""",
    "log": """
def log(self, logs, *args, **kwargs):
    logs["at"] = self.state.global_step
    if "loss" in logs:
        logs["perplexity"] = 2.718281828 ** logs["loss"]
    super().log(logs, *args, **kwargs)
""",
    "prediction_step": """
def prediction_step(self, *args, **kwargs):
    result = super().prediction_step(*args, **kwargs)
    self.batches_seen = getattr(self, "batches_seen", 0) + 1
    return result
""",
    "evaluate": """
def evaluate(self, *args, **kwargs):
    metrics = super().evaluate(*args, **kwargs)
    print("evaluated", round(metrics["eval_loss"], 4))
    return metrics
""",
    "curriculum": """
def compute_loss(self, model, inputs, *args, **kwargs):
    result = super().compute_loss(model, inputs, *args, **kwargs)
    scale = 0.5 if self.state.global_step < 4 else 1.0
    return (scale * result[0], *result[1:]) if isinstance(result, tuple) else scale * result
""",
}
OVERRIDES_SHOW = {
    "training_step": 'print("steps seen", trainer.steps_seen, round(trainer.sum_seen, 3))',
    "prediction_step": 'print("batches seen", getattr(trainer, "batches_seen", 0))',
}

# what compute_loss keeps of each micro-batch: before, lines in it, what is shown in the end
KEPT = {
    "list": ("kept = []", "kept.append(loss.item())", "len(kept), round(sum(kept), 3)"),
    "counter": ("", "self.calls = getattr(self, 'calls', 0) + 1", "trainer.calls"),
    "queue": (
        "recent = deque(maxlen=3)",
        "recent.append(loss.item())",
        "[round(value, 4) for value in recent]",
    ),
    "closure": (
        "def make_note():\n    seen = {'n': 0, 'sum': 0.0}\n\n    def note(value=None):\n        if value is not None:\n"
        "            seen['n'] += 1\n            seen['sum'] += value\n        return seen\n\n    return note\n\n\nnote = make_note()",
        "note(loss.item())",
        "note()['n'], round(note()['sum'], 3)",
    ),
    "model_attribute": ("", "model.last_loss = loss.detach()", "round(float(model.last_loss), 4)"),
    "iterator": (
        "weights = itertools.cycle([1.0, 0.5, 2.0])",
        "loss = loss * next(weights)",
        "next(weights)",
    ),
    "average": (
        "",
        "self.average = 0.9 * getattr(self, 'average', loss.item()) + 0.1 * loss.item()\nloss = loss / (1 + self.average)",
        "round(trainer.average, 4)",
    ),
    "file": (
        "",
        "with open('micro.txt', 'a') as fh:\n    fh.write(f'{loss.item():.4f}\\n')",
        "sum(1 for _ in open('micro.txt'))",
    ),
    "print": ("", "print(f'micro {loss.item():.4f}')", "'printed'"),
}
KEPT_USES = {"queue": "from collections import deque", "iterator": "import itertools"}

LISTENERS = {
    "asks_eval": """
def on_step_end(self, args, state, control, **kwargs):
    if state.global_step == 3:
        control.should_log = True
        control.should_evaluate = True
""",
    "stops_epoch": """
def on_step_end(self, args, state, control, **kwargs):
    if state.epoch is not None and state.epoch < 1 and state.global_step == 4:
        control.should_epoch_stop = True
""",
    "per_substep": """
def __init__(self):
    self.substeps = self.steps = 0

def on_substep_end(self, args, state, control, **kwargs):
    self.substeps += 1

def on_step_end(self, args, state, control, **kwargs):
    self.steps += 1

def on_train_end(self, args, state, control, **kwargs):
    print("substeps", self.substeps, "steps", self.steps)
""",
    "counts_tokens": """
def on_step_end(self, args, state, control, model=None, **kwargs):
    norm = sum(p.detach().pow(2).sum().item() for p in model.parameters() if p.requires_grad) ** 0.5
    print(f"norm {norm:.3f}")
""",
    "changes_data": """
def on_epoch_end(self, args, state, control, train_dataloader=None, **kwargs):
    print("batches", len(train_dataloader), "epoch", round(state.epoch, 2))
""",
    "snapshot": """
def on_epoch_end(self, args, state, control, model=None, **kwargs):
    torch.save({k: v.clone() for k, v in model.state_dict().items()}, f"epoch{int(state.epoch)}.pt")
    with open("epochs.txt", "a") as fh:
        fh.write(f"{state.epoch} {state.global_step}\\n")
""",
}

ARGUMENTS = {
    "by_length": ['train_sampling_strategy="group_by_length"'],
    "drop_last": ["dataloader_drop_last=True"],
    "checkpointing": ["gradient_checkpointing=True"],
    "cosine": ['lr_scheduler_type="cosine"', "warmup_steps=3"],
    "neftune": ["neftune_noise_alpha=5.0"],
    "first_step": ["logging_first_step=True"],
    "clip_small": ["max_grad_norm=0.1"],
    "eval_delay": ["eval_delay=1"],
    "weight_decay": ["weight_decay=0.1", "adam_beta2=0.95"],
}

_TOKENIZER = """
words = {f"w{i}": i for i in range(1, 24)}
raw = Tokenizer(models.WordLevel({"<pad>": 0, **words, "<eos>": 24, "<unk>": 25}, unk_token="<unk>"))
raw.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def some(count):
    return " " + " ".join(random.choices(list(words), k=count))
"""
_SMALL = "hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=24, eos_token_id=24"
_TOKENS = {
    "from tokenizers import Tokenizer, models, pre_tokenizers",
    "from transformers import PreTrainedTokenizerFast",
    "from datasets import Dataset",
    "import random",
}
_PAIR = '{"prompt": some(3).strip(), "chosen": some(2 + i % 4), "rejected": some(2 + i % 3)}'


def _causal(name: str) -> Lines:
    return lines(f"config = LlamaConfig(vocab_size=26, {_SMALL})\nmodel = LlamaForCausalLM(config)") + (
        ["reference = LlamaForCausalLM(config)"] if name in ("dpo", "kto") else []
    )


class Library:
    """Data, model and call of another library's Trainer."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.trainer = {
            "seq2seq": "Seq2SeqTrainer",
            "sentence": "SentenceTransformerTrainer",
            "reward": "RewardTrainer",
        }.get(name, f"{name.upper()}Trainer")
        self.config = {
            "seq2seq": "Seq2SeqTrainingArguments",
            "sentence": "SentenceTransformerTrainingArguments",
            "reward": "RewardConfig",
        }.get(name, f"{name.upper()}Config")

    @property
    def imports(self) -> set[str]:
        both = f"{self.config}, {self.trainer}"
        match self.name:
            case "seq2seq":
                return {
                    "import random",
                    "from datasets import Dataset",
                    f"from transformers import T5Config, T5ForConditionalGeneration, {both}",
                }
            case "sentence":
                return {
                    *_TOKENS,
                    "from transformers import BertConfig, BertModel",
                    f"from sentence_transformers import SentenceTransformer, {both}",
                    "from sentence_transformers import losses as st_losses",
                    "from sentence_transformers.models import Pooling, Transformer",
                }
            case "orpo" | "cpo":
                where = f"from trl.experimental.{self.name} import {both}"
            case _:
                where = f"from trl import {both}"
        model = "LlamaForSequenceClassification" if self.name == "reward" else "LlamaForCausalLM"
        return {*_TOKENS, f"from transformers import LlamaConfig, {model}", where}

    def data(self, train: int, evaluated: int) -> Lines:
        row = {
            "kto": '{"prompt": some(3).strip(), "completion": some(2 + i % 4), "label": i % 3 > 0}',
            "reward": '{"chosen": some(3 + i % 4), "rejected": some(3 + i % 3)}',
            "seq2seq": '{"input_ids": [random.randint(2, 23) for _ in range(6)], "labels": [random.randint(2, 23) for _ in range(4)]}',
            "sentence": '{"anchor": some(4).strip(), "positive": some(4).strip()}',
        }.get(self.name, _PAIR)
        made = [] if self.name == "seq2seq" else lines(_TOKENIZER)
        return [
            *made,
            "",
            f"rows = Dataset.from_list([{row} for i in range({train + evaluated})])",
            f"train_ds, eval_ds = rows.select(range({train})), rows.select(range({train}, {train + evaluated}))",
        ]

    def model(self) -> Lines:
        match self.name:
            case "seq2seq":
                return lines("""
config = T5Config(
    vocab_size=24, d_model=16, d_ff=32, d_kv=8, num_layers=1, num_heads=2, dropout_rate=0.0,
    pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
)
model = T5ForConditionalGeneration(config)
""")
            case "sentence":
                return lines("""
config = BertConfig(
    vocab_size=26, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
    hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=32,
)
BertModel(config).save_pretrained("tiny")
tokenizer.save_pretrained("tiny")
word = Transformer("tiny", max_seq_length=16)
model = SentenceTransformer(modules=[word, Pooling(16)], device="cpu")
loss = st_losses.MultipleNegativesRankingLoss(model)
""")
            case "reward":
                return lines(
                    f"config = LlamaConfig(vocab_size=26, num_labels=1, {_SMALL})\nmodel = LlamaForSequenceClassification(config)"
                )
        return _causal(self.name)

    @property
    def arguments(self) -> Lines:
        return [] if self.name in ("seq2seq", "sentence") else ["max_length=16", "bf16=False"]

    @property
    def call(self) -> Lines:
        if self.name == "sentence":
            return ["loss=loss"]
        made = [] if self.name == "seq2seq" else ["processing_class=tokenizer"]
        return [*made, *(["ref_model=reference"] if self.name in ("dpo", "kto") else [])]


def own_trainer(base: str, override: str, kept: str) -> Lines:
    """A subclass of ``base`` that overrides what the two features say."""
    body: Lines = []
    if override != "none":
        body += [*lines(OVERRIDES[override]), ""]
    if kept != "none":
        inner = [
            "result = super().compute_loss(model, inputs, *args, **kwargs)",
            "loss = result[0] if isinstance(result, tuple) else result",
            "if model.training:",
            *indent(lines(KEPT[kept][1])),
            "return (loss, *result[1:]) if isinstance(result, tuple) else loss",
        ]
        body += under("def compute_loss(self, model, inputs, *args, **kwargs):", inner)
    before = lines(KEPT[kept][0]) if kept != "none" else []
    return [*before, *([""] if before else []), *under(f"class OwnTrainer({base}):", body), ""]
