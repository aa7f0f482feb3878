"""A model that is sharded over two GPUs against one GPU and DDP: step time, losses, adapter, memory.

    python benchmarks/sharding.py prepare FOLDER          write the notebooks and convert them (needs nb2ddp, no GPU)
    python benchmarks/sharding.py run FOLDER [CASE..]     run them, print a row for each run (needs two GPUs)
                                  [--gpus 2]
                                  [--cpu]                 a tiny model, on gloo ranks, what needs no GPU: the
                                                          benchmark's own code is tried so

The two halves may run on different machines: FOLDER holds all that the second needs; it makes the model there, a
random Llama of 4.3 billion parameters. Each row is compared with the single run ("one"); a second single run
("again") is the floor. Cases whose step time counts run one after the other, the others all at once.
"adapter" is the difference of all its values over their length, "B" that of the LoRA B alone, which start at zero.
Memory is PyTorch's own count for each GPU: the most of all training, and the least at the start of a step.
The cases "vision", "vision16" and "mixed" (rows without a picture too) train a random Qwen2-VL of 2.2 billion
parameters, made there too; "see" is the difference of the vision tower's LoRA B.
The case "large" runs under a limit of GPU memory too: rows that end in "limited". What these train is loaded with
plain PEFT in the end, and its logits are compared with the single run's, which had no limit.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import sharding_vision as vision

LIMIT = 7.2  # GiB: the weights in 16 bits alone take 8
WARM = 3  # steps that no median counts
SECONDS = 240  # for one run
LARGE = {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 24}
LARGE |= {"num_attention_heads": 32, "num_key_value_heads": 8}
TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
TINY |= {"num_attention_heads": 2, "num_key_value_heads": 2}

SETTINGS = """\
import os
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["UNSLOTH_DISABLE_STATISTICS"] = "1"
os.environ["UNSLOTH_PADDING_CHOICE"] = "padded"  # else one GPU may choose otherwise than two"""

IMPORT = """\
from unsloth import {loader}
import torch"""

CAP = """\
limit = float(os.environ.get("MEMORY_LIMIT", "0"))
if limit:
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(limit * 2**30 / total)"""

LOAD = """\
model, tokenizer = {loader}.from_pretrained(
    model_name = "../../model",
    max_seq_length = 512,
    dtype = {dtype},
    load_in_4bit = {four_bit},
)
model = {loader}.get_peft_model(
    model,
    r = 16,
    lora_alpha = 16,
    lora_dropout = 0,
    use_gradient_checkpointing = "unsloth",
    random_state = 3407,
)"""

DATA = """\
from datasets import load_dataset
dataset = load_dataset("json", data_files = "../../{data}.jsonl", split = "train")"""

ARGUMENTS = """\
        per_device_train_batch_size = {batch},
        gradient_accumulation_steps = 4,
        warmup_steps = 2,
        max_steps = {steps},
        learning_rate = {rate},
        logging_steps = 1,
        optim = "{optim}",
        seed = 3407,
        output_dir = "outputs",
        save_strategy = "no",
        report_to = "none",
        max_length = 512,
    ),
)"""

SFT = f"""\
from trl import SFTConfig, SFTTrainer
from watch import Watch
trainer = SFTTrainer(
    model = model,
    processing_class = tokenizer,
    train_dataset = dataset,
    callbacks = [Watch()],
    args = SFTConfig(
        dataset_text_field = "text",
{ARGUMENTS}"""

RESPONSES = """\
from unsloth.chat_templates import train_on_responses_only
trainer = train_on_responses_only(
    trainer,
    instruction_part = "<|user|>",
    response_part = "<|assistant|>",
)"""

DPO = f"""\
from unsloth import PatchDPOTrainer
PatchDPOTrainer()
from trl import DPOConfig, DPOTrainer
from watch import Watch
trainer = DPOTrainer(
    model = model,
    ref_model = None,
    processing_class = tokenizer,
    train_dataset = dataset,
    callbacks = [Watch()],
    args = DPOConfig(
{ARGUMENTS}"""

TRAIN = "trainer.train()"
SAVE = 'model.save_pretrained("lora_model")'

# What the runs note: no part of the notebook, so that each rank notes its own.
WATCH = '''\
import gc, json, os, time
import torch
from transformers import TrainerCallback

class Watch(TrainerCallback):
    """Note losses, step times and GPU memory of a rank."""

    def __init__(self):
        self.losses, self.ends, self.held = [], [], []

    def on_step_begin(self, args, state, control, **kwargs):
        self.held.append(torch.cuda.memory_allocated() if torch.cuda.is_available() else 0)

    def on_step_end(self, args, state, control, **kwargs):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())

    def on_log(self, args, state, control, logs, **kwargs):
        if "loss" in logs:
            self.losses.append(logs["loss"])

    def on_train_end(self, args, state, control, **kwargs):
        peak = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
        noted = dict(losses=self.losses, ends=self.ends, held=min(self.held), peak=peak)
        with open(f"watch-{os.environ.get('RANK', '0')}.json", "w") as file:
            json.dump(noted, file)
'''

CASES: dict[str, dict[str, Any]] = {
    "4bit": dict(
        four_bit=True, optim="adamw_8bit", rows=["one", "again", "ddp", "fsdp"], timed=True, on_cpu=False
    ),
    "16bit": dict(rows=["one", "again", "ddp", "fsdp"], timed=True),
    "fp16": dict(
        four_bit=True,
        optim="adamw_8bit",
        dtype="torch.float16",
        rows=["one", "again", "ddp", "fsdp"],
        on_cpu=False,
    ),
    "chat": dict(data="chat", rows=["one", "again", "ddp", "fsdp"]),
    "dpo": dict(
        kind="dpo", data="dpo", batch=2, rate=5e-5, rows=["one", "again", "ddp", "fsdp"], on_cpu=False
    ),
    "vision": dict(
        kind="vision",
        four_bit=True,
        optim="adamw_8bit",
        rows=["one", "again", "ddp", "fsdp"],
        timed=True,
        on_cpu=False,
    ),
    "vision16": dict(kind="vision", generates=True, rows=["one", "again", "ddp", "fsdp"], on_cpu=False),
    "mixed": dict(kind="vision", pictures=2, batch=2, rows=["one", "again", "ddp", "fsdp"], on_cpu=False),
    "large": dict(batch=2, rows=["one", "again", "ddp", "one limited", "ddp limited", "fsdp limited"]),
}
USUAL = dict(
    kind="sft", loader="FastLanguageModel", dtype="None", four_bit=False, optim="adamw_torch", data="sft",
    batch=4, steps=10, rate=2e-4,
)  # fmt: skip
# pictures: of five rows, how many have one; seconds: for one run
SEEING = dict(loader="FastVisionModel", pictures=5, generates=False, seconds=160)


def prepare(folder: Path) -> None:
    """Write the notebooks, as plain scripts too, and convert them with each strategy."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    from nb2ddp import convert

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "watch.py").write_text(WATCH)
    for name, case in CASES.items():
        here = folder / name
        here.mkdir(exist_ok=True)
        values = values_of(name)
        cells = [SETTINGS, IMPORT, CAP, *_cells(name, values)]
        cells = [cell.format(**values) for cell in cells]
        notebook = here / "notebook.ipynb"
        nbformat.write(new_notebook(cells=[new_code_cell(cell) for cell in cells]), notebook)
        refused = {}
        made = {}
        for strategy in ("ddp", "fsdp"):
            made[strategy] = convert(notebook, strategy=strategy)
            if made[strategy].status != "converted":
                refused[strategy] = [declined.why for declined in made[strategy].declined]
                print(f"{name}, {strategy}: {refused[strategy][0]}")
        (here / "refused.json").write_text(json.dumps(refused))
        for row in case["rows"]:
            strategy = row.partition(" ")[0]
            if strategy in refused:
                continue
            place = here / row.replace(" ", "_")
            place.mkdir(exist_ok=True)
            if strategy in ("one", "again"):
                (place / "script.py").write_text("\n\n".join(cells))
                continue
            files = made[strategy].files
            (place / "script.py").write_text(files["train_ddp.py"])
            (place / "ddp_support.py").write_text(files["ddp_support.py"])
    print(f"{folder} is ready: {', '.join(CASES)}")


def values_of(name: str) -> dict[str, Any]:
    """Return what fills the cells of a case."""
    case = CASES[name]
    return USUAL | (SEEING if case.get("kind") == "vision" else {}) | case


def _cells(name: str, values: dict[str, Any]) -> list[str]:
    if values["kind"] == "vision":
        return vision.cells(values)
    sft = [SFT, RESPONSES] if name == "chat" else [SFT]
    return [LOAD, DATA, *([DPO] if values["kind"] == "dpo" else sft), TRAIN, SAVE]


def make_model(folder: Path, tiny: bool) -> None:
    """Save a random Llama with its tokenizer, and rows of text."""
    if (folder / "model" / "config.json").exists():
        return
    import random

    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    rng = random.Random(0)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choice(letters) for _ in range(rng.randint(2, 9))) for _ in range(3000)]

    def text(low: int, high: int) -> str:
        return " ".join(rng.choice(words) for _ in range(rng.randint(low, high)))

    rows = {
        "sft": [{"text": text(*((5, 30) if tiny else (150, 330)))} for _ in range(400)],
        "chat": [
            {"text": f"<|user|>{text(3, 60)}<|assistant|>{text(3, 60)}<|eos|>"} for _ in range(400)
        ],
        "dpo": [
            {"prompt": text(5, 20), "chosen": text(5, 60), "rejected": text(5, 60)} for _ in range(400)
        ],
    }  # fmt: skip
    for name, of_case in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in of_case))
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|bos|>", "<|eos|>", "<|pad|>", "<|user|>", "<|assistant|>"]
    bpe.train_from_iterator(
        (text(100, 100) for _ in range(500)),
        trainers.BpeTrainer(
            vocab_size=8000,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, bos_token=special[0], eos_token=special[1], pad_token=special[2],
        padding_side="right", model_max_length=2048, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip
    config = LlamaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=2048, bos_token_id=0, eos_token_id=1,
        pad_token_id=2, **(TINY | {"initializer_range": 0.1} if tiny else LARGE),
    )  # fmt: skip
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cpu" if tiny else "cuda"):
        model = LlamaForCausalLM(config)
    tokenizer.save_pretrained(folder / "model")
    model.save_pretrained(folder / "model")
    print(f"{sum(p.numel() for p in model.parameters()) / 1e9:.2f} B parameters", flush=True)


class Started:
    """One run: a notebook's own code or a script, in its folder."""

    def __init__(self, folder: Path, case: str, row: str, gpus: list[int], cpu: bool) -> None:
        self.case, self.row = case, row
        self.here = folder / case / row.replace(" ", "_")
        strategy, _, limited = row.partition(" ")
        for old in [*self.here.glob("watch-*.json"), *self.here.glob("lora_model/*")]:
            old.unlink()
        paths = [str(folder), os.environ.get("PYTHONPATH", "")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path for path in paths if path),
            "CUDA_VISIBLE_DEVICES": "" if cpu else ",".join(map(str, gpus)),
            # Unsloth leaves frozen weights whole where they take less than 0.4 of the GPU, whatever the limit
            "UNSLOTH_FSDP2_LAYOUT": "sharded",
            "UNSLOTH_BLOCK_COMPILE": "0",  # takes up to 100 s a run
            "TORCHINDUCTOR_COMPILE_THREADS": "4",
            "OMP_NUM_THREADS": "1" if cpu else "4",
        }
        if limited and not cpu:
            environment["MEMORY_LIMIT"] = str(LIMIT)
        if cpu:
            environment |= {"TORCH_COMPILE_DISABLE": "1", "TRITON_INTERPRET": "1"}
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={len(gpus)}"]
        ranks = torchrun if strategy in ("ddp", "fsdp") else []
        self.began = time.perf_counter()
        with open(self.here / "log.txt", "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, *ranks, "script.py"],
                cwd=self.here,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def ended(self) -> dict[str, Any]:
        """Wait for the end, and return what was noted."""
        try:
            seconds = values_of(self.case).get("seconds", SECONDS)
            code = self.process.wait(max(1, seconds - (time.perf_counter() - self.began)))
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            code = 124
        took = time.perf_counter() - self.began
        ranks = [json.loads(path.read_text()) for path in sorted(self.here.glob("watch-*.json"))]
        log = (self.here / "log.txt").read_text(errors="replace")
        whole = (self.here / "lora_model" / "adapter_model.safetensors").exists()
        done: dict[str, Any] = dict(code=code, took=took, ranks=ranks, whole=whole, here=self.here)
        lines = [line.strip() for line in log.splitlines() if "Error" in line or "error:" in line]
        done["why"] = lines[0][:150] if lines else ""
        done["out_of_memory"] = "OutOfMemoryError" in log or "out of memory" in log
        if ranks:
            ends = ranks[0]["ends"]
            steps = [end - start for start, end in itertools.pairwise(ends)]
            done["step"] = statistics.median(steps[WARM - 1 :] or steps)
        return done


def run(folder: Path, names: list[str], gpus: int, cpu: bool) -> None:
    """Run the cases and print a row for each run."""
    devices = list(range(gpus))
    chosen = [name for name in names or CASES if not cpu or CASES[name].get("on_cpu", True)]
    make_in = [sys.executable, __file__, "model", str(folder), *chosen, *(["--cpu"] if cpu else [])]
    subprocess.run(make_in, check=True)
    print(
        f"{'case':9}{'row':14}{'exit':>5}{'s/step':>8}{'ratio':>6}{'loss diff':>10}{'adapter':>9}{'B':>9}  "
        "losses; peak / held GiB of each GPU; seconds",
        flush=True,
    )
    single: dict[str, dict[str, Any]] = {}
    for name in chosen:
        for strategy, why in json.loads((folder / name / "refused.json").read_text()).items():
            print(f"{name:9}{strategy:14} declined by the converter: {why[0]}", flush=True)
    for name in chosen:
        if CASES[name].get("timed"):
            rows = there(folder, name)
            alone = [Started(folder, name, row, [i % gpus], cpu) for i, row in enumerate(rows[:2])]
            for started in alone:
                show(started, started.ended(), single)
            for row in rows[2:]:
                started = Started(folder, name, row, devices, cpu)
                show(started, started.ended(), single)
    together = []
    for name in chosen:
        for index, row in enumerate(there(folder, name) if not CASES[name].get("timed") else ()):
            both = row.startswith(("ddp", "fsdp"))
            together.append(Started(folder, name, row, devices if both else [index % gpus], cpu))
            if cpu:  # few cores: one after the other
                show(together[-1], together[-1].ended(), single)
    for started in together if not cpu else ():
        show(started, started.ended(), single)
    if "large" in chosen:
        subprocess.run([sys.executable, __file__, "logits", str(folder)], check=False)


def there(folder: Path, name: str) -> list[str]:
    """Return the rows of a case that the converter has taken."""
    rows: list[str] = CASES[name]["rows"]
    return [row for row in rows if (folder / name / row.replace(" ", "_") / "script.py").exists()]


def show(started: Started, done: dict[str, Any], single: dict[str, dict[str, Any]]) -> None:
    """Print the row of a run."""
    head = f"{started.case:9}{started.row:14}{done['code']:>5}"
    if started.row == "one":
        single[started.case] = done
    if done["code"] or not done["ranks"] or not done["whole"]:
        why = "out of GPU memory" if done["out_of_memory"] else done["why"]
        print(f"{head}  {why or 'no adapter'}; see {done['here']}/log.txt ({done['took']:.0f} s)", flush=True)
        return
    losses, base = done["ranks"][0]["losses"], single.get(started.case)
    timed = CASES[started.case].get("timed")  # others share the GPUs
    ratio = apart = whole = alone = sees = "-"
    if base and base["whole"] and base["ranks"] and started.row != "one":
        ratio = f"{base['step'] / done['step']:.2f}" if timed else "-"
        pairs = zip(base["ranks"][0]["losses"], losses, strict=True)
        apart = f"{max(abs(a - b) for a, b in pairs):.1e}"
        whole, alone, sees = (f"{value:.1e}" for value in adapters_apart(base["here"], done["here"]))
    memory = ", ".join(f"{rank['peak'] / 2**30:.2f} / {rank['held'] / 2**30:.2f}" for rank in done["ranks"])
    step = f"{done['step']:.3f}" if timed else "-"
    print(
        f"{head}{step:>8}{ratio:>6}{apart:>10}{whole:>9}{alone:>9}  "
        f"{losses[0]:.4f} .. {losses[-1]:.4f}; {memory}; {done['took']:.0f} s"
        f"{f'; see {sees}' if values_of(started.case)['kind'] == 'vision' else ''}",
        flush=True,
    )


def adapters_apart(one: Path, other: Path) -> tuple[float, float, float]:
    """Return how far two adapters are apart, relative to the first: all of it, the B alone, the vision tower's B."""
    from safetensors.torch import load_file

    first, second = (load_file(here / "lora_model" / "adapter_model.safetensors") for here in (one, other))
    if first.keys() != second.keys():
        return float("nan"), float("nan"), float("nan")

    def relative(names: list[str]) -> float:
        length = sum(float(first[name].double().square().sum()) for name in names)
        apart = sum(float((first[name].double() - second[name].double()).square().sum()) for name in names)
        return float((apart / length) ** 0.5) if length else float("nan")

    learned = [name for name in first if "lora_B" in name]
    return relative(list(first)), relative(learned), relative([name for name in learned if "visual" in name])


def logits(folder: Path) -> None:
    """Load what the rows of "large" have saved with plain PEFT, and compare the logits of eight rows.

    The 16-bit weights are computed with in 32 bits: the rounding of 16 is as large as what the adapter changes.
    """
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32).to(device)
    texts = [json.loads(line)["text"] for line in (folder / "sft.jsonl").read_text().splitlines()[:8]]
    batch = tokenizer(texts, return_tensors="pt", padding=True, truncation=True, max_length=256).to(device)
    saved = [folder / "large" / row.replace(" ", "_") / "lora_model" for row in CASES["large"]["rows"]]
    found: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        found["no adapter"] = model(**batch).logits.float()
        for adapter in saved:
            if (adapter / "adapter_model.safetensors").exists():
                model = PeftModel.from_pretrained(model, adapter).eval()
                found[adapter.parent.name] = model(**batch).logits.float()
                model = model.unload()
    base = found.pop("one")
    used = batch["attention_mask"].bool()
    for name, other in found.items():
        apart = (other - base)[used]
        same = (other.argmax(-1) == base.argmax(-1))[used].float().mean()
        print(
            f"logits of {name:14} against one's: {float(apart.norm() / base[used].norm()):.1e} of their length, "
            f"at most {float(apart.abs().max()):.1e}; the same next token in {100 * float(same):.1f} %",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["prepare", "run", "model", "logits"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_intermixed_args()
    folder = arguments.folder.resolve()
    if arguments.what == "prepare":
        prepare(folder)
    elif arguments.what == "model":
        kinds = {values_of(name)["kind"] for name in arguments.cases or CASES}
        if kinds - {"vision"}:
            make_model(folder, arguments.cpu)
        if "vision" in kinds:
            vision.make_model(folder, arguments.cpu)
    elif arguments.what == "logits":
        logits(folder)
    else:
        run(folder, arguments.cases, arguments.gpus, arguments.cpu)


if __name__ == "__main__":
    main()
