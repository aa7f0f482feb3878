"""Step time of a loop that waits for its images, in one process and on ranks with a core each. No GPU is needed.

    python benchmarks/loading.py FOLDER [LOADER...] [--rounds 3] [--ranks 2] [--steps 80]

An image folder is made in FOLDER; each image is decoded, turned, resized and blurred when it is read. The variants
take turns, as many times over as there are rounds:

``one``    the notebook in one process, on one core
``whole``  its script on the ranks, each of which reads all rows of every batch
``rows``   its script as it is converted

A run's step is the mean of the seconds between two batches from the tenth on: what tests, checks and trials cost is in
it. "s/step" are seconds of the clock, which say nothing on a busy machine; "core" are the CPU's seconds a step of rank
0 and its workers, which share one core: where loading is what a step waits for, and the cores are idle, the step takes
as long. "times one" are the ratios of one's step to the variant's, round by round: the median, the lowest and the
highest. "NOT THE SAME" is said where a batch is not one process's bit for bit, or a loss differs by more than 1e-4.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from nb2ddp import convert
from nb2ddp.runtime import support_module, used_names

WARM = 10
NOTEBOOK = """\
import multiprocessing, os, random, time
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset
from PIL import Image, ImageFilter

torch.manual_seed(0)
random.seed(0)

class Images(Dataset):
    def __init__(self, folder):
        self.paths = [os.path.join(folder, name) for name in sorted(os.listdir(folder))]
    def __len__(self):
        return 8 * STEPS
    def __getitem__(self, number):
        image = Image.open(self.paths[number % len(self.paths)]).convert("RGB")
        image = image.rotate(ANGLE, resample=Image.BICUBIC).resize((96, 96), Image.LANCZOS)
        image = image.filter(ImageFilter.GaussianBlur(2))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255, number % 10

def used():
    seconds = time.process_time()
    for worker in multiprocessing.active_children():
        fields = open(f"/proc/{worker.pid}/stat").read().rpartition(")")[2].split()
        seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds

loader = DataLoader(Images("../images"), batch_size=8, shuffle=True, num_workers=WORKERS)
model = nn.Sequential(nn.Conv2d(3, 8, 5, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
for images, labels in loader:
    optimizer.zero_grad()
    loss = criterion(model(images), labels)
    loss.backward()
    optimizer.step()
    print(f"step {time.perf_counter():.4f} {used():.4f} {loss.item():.6f} {images.double().sum().item()!r}", flush=True)
"""
LOADERS = {
    "in the loop's process": {"WORKERS": "0", "ANGLE": "7 * number"},
    "2 workers": {"WORKERS": "2", "ANGLE": "7 * number"},
    "2 workers, random": {"WORKERS": "2", "ANGLE": "random.uniform(0, 360)"},
}


def prepare(folder: Path, name: str, steps: int) -> None:
    """Write a loader's notebook and its script, with and without what divides the loading."""
    code = NOTEBOOK
    for capital, value in {**LOADERS[name], "STEPS": str(steps)}.items():
        code = code.replace(capital, value)
    cell = {
        "cell_type": "code",
        "id": "a",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
        "source": code,
    }
    folder.mkdir(parents=True, exist_ok=True)
    notebook = folder / "notebook.ipynb"
    notebook.write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    files = convert(notebook).files
    used = used_names(files["train_ddp.py"], "ddp")
    for variant, names in (("rows", used), ("whole", used - {"divided_loading"})):
        (folder / variant).mkdir(exist_ok=True)
        (folder / variant / "train_ddp.py").write_text(files["train_ddp.py"])
        (folder / variant / "ddp_support.py").write_text(support_module(frozenset(names)))
    (folder / "one").mkdir(exist_ok=True)
    (folder / "one" / "train_ddp.py").write_text(code)


def make_images(folder: Path, count: int = 64) -> None:
    """Write photographs' stand-ins: 640 x 480, smooth and noisy."""
    import numpy
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    random = numpy.random.default_rng(0)
    for number in range(count):
        small = Image.fromarray(random.integers(0, 256, (24, 32, 3), dtype=numpy.uint8))
        small.resize((640, 480), Image.Resampling.BICUBIC).save(folder / f"{number:03}.jpg", quality=90)


def run(folder: Path, variant: str, ranks: int) -> tuple[list[float], list[list[str]]]:
    """Return the seconds a step, by the clock and of a core, and the losses and sums that a run has printed."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    if variant == "one":
        command = ["taskset", "-c", "0", sys.executable, "train_ddp.py"]
    else:
        pinned = f"exec taskset -c $LOCAL_RANK {sys.executable} train_ddp.py"
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
        command = [*launcher, f"--nproc_per_node={ranks}", "bash", "-c", pinned]
    ended = subprocess.run(command, cwd=folder / variant, env=environment, capture_output=True, text=True)
    if ended.returncode:
        sys.exit(f"{variant} failed:\n{ended.stdout[-2000:]}{ended.stderr[-4000:]}")
    steps = [line.split()[1:] for line in ended.stdout.splitlines() if line.startswith("step ")]
    first, last = steps[WARM - 1], steps[-1]
    seconds = [(float(last[of]) - float(first[of])) / (len(steps) - WARM) for of in (0, 1)]
    return seconds, [step[2:] for step in steps]


def are_same(one: list[list[str]], other: list[list[str]]) -> bool:
    """Return whether two runs had the same batches, and losses that differ by rounding alone."""
    losses = max(abs(float(a[0]) - float(b[0])) for a, b in zip(one, other, strict=True))
    return [step[1] for step in one] == [step[1] for step in other] and losses < 1e-4


def main() -> None:
    """Print a row for each loader and variant."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("loaders", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=80)
    options = parser.parse_args()
    make_images(options.folder / "images")
    print(f"{os.cpu_count()} cores, {options.rounds} rounds of {options.steps} steps, {options.ranks} ranks")
    for number, name in enumerate(LOADERS):
        if options.loaders and name not in options.loaders:
            continue
        folder = options.folder / f"loader-{number}"
        prepare(folder, name, options.steps)
        (folder / "images").exists() or (folder / "images").symlink_to((options.folder / "images").resolve())
        seconds: dict[str, list[list[float]]] = {"one": [], "whole": [], "rows": []}
        same = True
        for _ in range(options.rounds):
            expected: list[list[str]] = []
            for variant, of_variant in seconds.items():
                step, figures = run(folder, variant, options.ranks)
                of_variant.append(step)
                expected = expected or figures
                same = same and are_same(expected, figures)
        for variant, of_variant in seconds.items():
            said = []
            for kind, of_one, own in zip(
                ("s/step", "core"),
                zip(*seconds["one"], strict=True),
                zip(*of_variant, strict=True),
                strict=True,
            ):
                ratios = sorted(one / of for one, of in zip(of_one, own, strict=True))
                times = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
                said.append(f"{kind} {statistics.median(own):.3f}, times one {times}")
            print(f"{name:22} {variant:6} {'; '.join(said)}{'' if same else '; NOT THE SAME'}", flush=True)


if __name__ == "__main__":
    main()
