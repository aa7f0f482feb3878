"""Step time of hand-written training loops and of Lightning on one GPU, and of their scripts on two.

    python benchmarks/loops.py prepare FOLDER [--old CHECKOUT]   write the notebooks and convert them (no GPU)
    python benchmarks/loops.py run FOLDER [LOOP...] [--rounds 3] run them, print a row for each (needs GPUs)
                                 [--ranks 2] [--cpu]             on gloo ranks: the benchmark's own code is tried so
                                 [--variants one,ddp]

The two halves may run on different machines: FOLDER holds all that the second needs. Models and rows are made
there, at random. The variants of a loop take turns, as many times over as there are rounds:

``one``   the notebook in one process
``ddp``   its script on the ranks
``host``  the script on ranks whose GPUs do not reach each other directly (NCCL_P2P_DISABLE=1), as two T4s do not
``old``   the script of another revision (--old) on the ranks
``part``  the notebook in one process with a rank's number of rows in each batch and no other rank to wait for: no
          way of dividing its batches is faster
``apart`` as many of those at once, each on its own GPU: what the machine allows; its step is the slowest one's

A run's step is the median of the seconds between the lines that it prints with the losses, without its first ten
steps. "times one" are the ratios of one's step to the variant's, round by round: the median, the lowest and the
highest. "loss" is the largest difference from one's losses.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

STEPS = 32
WARM = 10  # steps in which kernels are loaded, and batches are computed whole as well for comparison

DATA = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
"""
CLASSIFIED = """\
ids = torch.randint(5, 30000, (STEPS * BATCH, 128))
mask = (torch.arange(128) < torch.randint(40, 129, (STEPS * BATCH, 1))).long()
labels = torch.randint(0, 2, (STEPS * BATCH,))
loader = DataLoader(TensorDataset(ids, mask, labels), batch_size=BATCH, shuffle=True)

from transformers import BertConfig, BertForSequenceClassification
config = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, BERT)
model = BertForSequenceClassification(config).to(device)
"""
OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)\n"
END = """\
    print(f"loss {loss.item():.6f}", flush=True)
"""

# The variables in capitals are filled in: on CPUs (--cpu) with small numbers.
LOOPS = {
    "loss of the model": DATA + CLASSIFIED + OPTIMIZER + """\
model.train()
for ids, mask, labels in loader:
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = model(input_ids=ids.to(device), attention_mask=mask.to(device), labels=labels.to(device)).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
""" + END,
    "loss of logits": DATA + CLASSIFIED + OPTIMIZER + """\
criterion = torch.nn.CrossEntropyLoss()
model.train()
for ids, mask, labels in loader:
    optimizer.zero_grad()
    with torch.autocast(device, dtype=torch.bfloat16):
        logits = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
        loss = criterion(logits, labels.to(device))
    loss.backward()
    optimizer.step()
""" + END,
    "accelerate": DATA + CLASSIFIED + OPTIMIZER + """\
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="bf16")
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
model.train()
for ids, mask, labels in loader:
    optimizer.zero_grad()
    loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    accelerator.backward(loss)
    optimizer.step()
""" + END,
    "accumulation": DATA + """\
ids = torch.randint(5, 8000, (STEPS * ACCUMULATION * ROWS, LENGTH))
loader = DataLoader(TensorDataset(ids), batch_size=ROWS, shuffle=True)

from transformers import LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(vocab_size=8000, LLAMA)).to(device)
""" + OPTIMIZER + """\
accumulation_steps = ACCUMULATION
model.train()
for step, (ids,) in enumerate(loader):
    ids = ids.to(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss / accumulation_steps
    loss.backward()
    if (step + 1) % accumulation_steps == 0:
        optimizer.step()
        optimizer.zero_grad()
        print(f"loss {loss.item():.6f}", flush=True)
""",
    "gpt": DATA + """\
tokens = torch.randint(0, VOCABULARY, (STEPS * TEXTS, CONTEXT + 1))
loader = DataLoader(TensorDataset(tokens), batch_size=TEXTS, shuffle=True)

class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.qkv, self.out = heads, torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.norms = torch.nn.ModuleList([torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)])
        self.mlp = torch.nn.Sequential(
            torch.nn.Linear(width, 4 * width), torch.nn.GELU(), torch.nn.Linear(4 * width, width)
        )

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(B, T, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp(self.norms[1](x))

class GPT(torch.nn.Module):
    def __init__(self, width=GPT_WIDTH, heads=GPT_HEADS, layers=GPT_LAYERS):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(VOCABULARY, width), torch.nn.Embedding(CONTEXT, width)
        self.blocks = torch.nn.Sequential(*[Block(width, heads) for _ in range(layers)])
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, ids, targets=None):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        logits = self.head(self.norm(self.blocks(x)))
        if targets is None:
            return logits, None
        B, T, C = logits.shape
        logits = logits.view(B * T, C)
        return logits, torch.nn.functional.cross_entropy(logits, targets.reshape(B * T))

model = GPT().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for (batch,) in loader:
    x, y = batch[:, :-1].to(device), batch[:, 1:].to(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        logits, loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
""" + END,
    "images": DATA + """\
images = torch.randn(4 * IMAGES, 3, SIDE, SIDE)
labels = torch.randint(0, 10, (4 * IMAGES,))
loader = DataLoader(TensorDataset(images, labels), batch_size=IMAGES, shuffle=True, pin_memory=True)

class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.GroupNorm(8, width), torch.nn.ReLU(),
            torch.nn.Conv2d(width, width, 3, padding=1), torch.nn.GroupNorm(8, width),
        )

    def forward(self, x):
        return torch.relu(x + self.layers(x))

class Net(torch.nn.Module):
    def __init__(self, width=WIDTH):
        super().__init__()
        self.stem = torch.nn.Conv2d(3, width, 7, stride=4, padding=3)
        self.blocks = torch.nn.Sequential(*[Block(width) for _ in range(8)])
        self.head = torch.nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))

model = Net().to(device)
criterion = torch.nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for epoch in range(STEPS // 4):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.6f}", flush=True)
""",
    "lightning": DATA + CLASSIFIED + """\
import lightning as L

class Classifier(L.LightningModule):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def training_step(self, batch, index):
        ids, mask, labels = batch
        loss = self.model(input_ids=ids, attention_mask=mask, labels=labels).loss
        self.log("train_loss", loss)
        return loss

    def on_train_batch_end(self, outputs, batch, index):
        print(f"loss {outputs['loss'].item():.6f}", flush=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-5)

trainer = L.Trainer(
    max_epochs=1, precision="bf16-mixed", gradient_clip_val=1.0, logger=False, enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Classifier(model), loader)
""",
}  # fmt: skip
# An H200 computes fp32 about as fast as a T4 does fp16, so that a step waits for the GPU as on a T4.
LOOPS["fp32"] = (
    LOOPS["loss of the model"]
    .replace("    with torch.autocast(device, dtype=torch.bfloat16):\n    ", "")
    .replace("BATCH", "FULL")
)
LOOPS["accelerate fp32"] = LOOPS["accelerate"].replace('mixed_precision="bf16"', "").replace("BATCH", "FULL")
LOOPS["gpt of characters"] = LOOPS["gpt"].replace("VOCABULARY", "CHARACTERS")
LOOPS["batch norm"] = LOOPS["images"].replace("GroupNorm(8, width)", "BatchNorm2d(width)")
LOOPS["batch norm fp32"] = (
    LOOPS["batch norm"]
    .replace("with torch.autocast(device, dtype=torch.bfloat16):\n            ", "")
    .replace("import torch\n", "import torch\ntorch.backends.cudnn.allow_tf32 = False\n", 1)
)

GPU = {
    "STEPS": STEPS,
    "BATCH": 256,
    "FULL": 96,
    "BERT": "hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096",
    "ACCUMULATION": 4,
    "ROWS": 16,
    "LENGTH": 1024,
    "LLAMA": "hidden_size=2048, intermediate_size=5632, num_hidden_layers=12, num_attention_heads=16",
    "TEXTS": 32,
    "CONTEXT": 1024,
    "VOCABULARY": 50304,
    "CHARACTERS": 65,
    "GPT_WIDTH": 768,
    "GPT_HEADS": 12,
    "GPT_LAYERS": 12,
    "IMAGES": 128,
    "SIDE": 96,
    "WIDTH": 512,
}
CPU = GPU | {
    "TEXTS": 8,
    "CONTEXT": 32,
    "VOCABULARY": 512,
    "GPT_WIDTH": 64,
    "GPT_HEADS": 2,
    "GPT_LAYERS": 2,
    "BATCH": 8,
    "FULL": 8,
    "IMAGES": 8,
    "BERT": "hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128",
    "ROWS": 4,
    "LENGTH": 32,
    "LLAMA": "hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2",
    "SIDE": 32,
    "WIDTH": 16,
}


def filled(loop: str, sizes: dict[str, object], ranks: int = 1) -> str:
    """Return a loop's code, with a rank's share of the rows in each batch."""
    shared = {name: int(str(sizes[name])) // ranks for name in ("BATCH", "FULL", "IMAGES", "ROWS", "TEXTS")}
    text = LOOPS[loop]
    for name, value in (sizes | shared).items():
        text = text.replace(name, str(value))
    return text


def prepare(folder: Path, old: Path | None, cpu: bool, ranks: int) -> None:
    """Write each loop as the variants run it: the notebook, a rank's share of it, and scripts."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    sizes = CPU if cpu else GPU
    for loop in LOOPS:
        here = folder / loop.replace(" ", "_")
        here.mkdir(parents=True, exist_ok=True)
        (here / "one.py").write_text(filled(loop, sizes))
        (here / "part.py").write_text(filled(loop, sizes, ranks))
        nbformat.write(new_notebook(cells=[new_code_cell(filled(loop, sizes))]), here / "notebook.ipynb")
        for variant, checkout in (("ddp", Path(__file__).parent.parent), ("old", old)):
            if checkout is not None:
                (here / variant).mkdir(exist_ok=True)
                for name, text in converted_by(checkout, here / "notebook.ipynb").items():
                    (here / variant / name).write_text(text)


def converted_by(checkout: Path, notebook: Path) -> dict[str, str]:
    """Return the script and its module, as the package of a checkout writes them."""
    program = """
import json, sys, nb2ddp
made = nb2ddp.convert(sys.argv[1])
assert made.status == "converted", made.declined
json.dump({name: text for name, text in made.files.items() if name in ("train_ddp.py", "ddp_support.py")}, sys.stdout)
"""
    env = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    command = [sys.executable, "-c", program, str(notebook.resolve())]
    made = subprocess.run(command, cwd=checkout, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(made.stdout))


def at_once(here: Path, ranks: int) -> tuple[float, list[float]]:
    """Run the variant ``part`` on each GPU; return the slowest one's seconds a step, and losses."""
    with ThreadPoolExecutor(ranks) as pool:
        return max(pool.map(lambda gpu: measure(here, "part", 1, gpu), range(ranks)))


def measure(here: Path, variant: str, ranks: int, gpu: int = 0) -> tuple[float, list[float]]:
    """Run a variant; return its seconds a step and its losses. One process takes the GPU ``gpu``.

    Raises:
        RuntimeError: it ended with another exit code than 0; its output is in the log beside it.
    """
    if variant == "apart":
        return at_once(here, ranks)
    command, env = [sys.executable, "-u", f"{variant}.py"], dict(os.environ)
    if gpu:
        env["CUDA_VISIBLE_DEVICES"] = str(gpu)
    if variant == "host":
        env["NCCL_P2P_DISABLE"] = "1"
    script = "ddp" if variant == "host" else variant
    if (here / script).is_dir():
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"]
        command = [sys.executable, "-u", *torchrun, f"{script}/train_ddp.py"]
    times, losses = [], []
    with open(here / f"{variant}{gpu or ''}.log", "w") as log:
        process = subprocess.Popen(command, cwd=here, env=env, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            log.write(line)
            if line.startswith("loss "):
                times.append(time.perf_counter())
                losses.append(float(line.split()[1]))
    if process.wait() or len(losses) < STEPS:
        raise RuntimeError(f"exit code {process.returncode}, {len(losses)} losses: see {here / variant}.log")
    return statistics.median(b - a for a, b in zip(times[WARM:], times[WARM + 1 :], strict=False)), losses


def run(folder: Path, loops: list[str], ranks: int, rounds: int, wanted: list[str]) -> None:
    """Let the variants of each loop take turns, and print a row for each."""
    print(f"{'loop':20}{'variant':9}{'s/step':>8}  {'times one':22}  loss", flush=True)
    for loop in loops or LOOPS:
        here = folder / loop.replace(" ", "_")
        variants = [
            name
            for name in ("one", "ddp", "host", "old", "part", "apart")
            if name in wanted
            and ((here / f"{name}.py").exists() or (here / name).is_dir() or name in ("host", "apart"))
        ]
        steps: dict[str, list[float]] = {name: [] for name in variants}
        curves: dict[str, list[float]] = {}
        for _ in range(rounds):
            for variant in list(variants):
                try:
                    step, curves[variant] = measure(here, variant, ranks)
                    steps[variant].append(step)
                    print(f"# {loop}, {variant}: {step:.4f}", file=sys.stderr, flush=True)  # a lease may end
                except RuntimeError as error:
                    print(f"{loop:20}{variant:9}{error}", flush=True)
                    variants.remove(variant)
        for variant in variants:
            ratios = [one / own for one, own in zip(steps["one"], steps[variant], strict=True)]
            spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            apart = max(abs(a - b) for a, b in zip(curves["one"], curves[variant], strict=True))
            loss = "" if variant in ("part", "apart") else f"{apart:.1e}"
            print(
                f"{loop:20}{variant:9}{statistics.median(steps[variant]):>8.4f}  {spread:22}  {loss}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["prepare", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("loops", nargs="*", help=", ".join(LOOPS))
    parser.add_argument("--old", type=Path)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--variants", default="one,ddp,host,old,part,apart")
    parser.add_argument("--cpu", action="store_true")
    arguments = parser.parse_args()
    if arguments.what == "prepare":
        prepare(arguments.folder, arguments.old, arguments.cpu, arguments.ranks)
    else:
        wanted = arguments.variants.split(",")
        run(arguments.folder.resolve(), arguments.loops, arguments.ranks, arguments.rounds, wanted)


if __name__ == "__main__":
    main()
