"""Step time and losses of converted notebooks on 1, 2 and 4 GPUs, against the notebook itself.

    python benchmarks/gpus.py prepare FOLDER       write the notebooks and convert them (needs nb2ddp, no GPU)
                              [--old CHECKOUT]     with the scripts of another revision beside them
    python benchmarks/gpus.py run FOLDER [CASE..]  run them one after the other, print the table (needs GPUs)
                              [--repeat N]         each case N times over, its rows in turn
                              [--rows 1,4]         these rows alone: 1, again, 2, 4, apart, "2 old", "2 host", "shared"

The two halves may run on different machines: FOLDER holds all that the second needs. The model is a
random Llama of 0.8 billion parameters, made on the spot and loaded in 4 bits with Unsloth's checkpointing.
A row's step time, data loading and logging included, is the median of the steps after the fourth; a ratio
compares it with the single run just before. The row "apart" is what the machine allows: as many single-GPU
runs at once, each with one rank's share of the work and none that waits for another; its step is the slowest
one's.
The cases "uneven ..." have rows of unlike length (see even.py) and a model of few wide layers, whose steps wait for
the GPU rather than for Python. Their row "again" is a second single run: its difference in the losses is the floor.
The row "2 unchecked" is the script without spot checks (NB2DDP_CHECKS=off), "2 host" without direct exchange
between GPUs (NCCL_P2P_DISABLE=1), which two T4s have not. The row "2 old" is another revision's script. The rows
"shared" and "shared unchecked" are two ranks on one GPU, through gloo: a check has its share of such a run, too.
In cases "uneven ..." a step is the mean of those after the eighth, for no two steps have the same work.
ratios.svg beside the notebooks shows the ratios (a grey bar: "apart"), where matplotlib is there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from gpu_notebooks import CASES, CLOCK, DATA, DPO, LOAD, MODEL, PROFILED_CLOCK, SAVE, SFT, TRAIN

HERE = Path(__file__).parent
BESIDE = ("old",)  # folders of other scripts, each a row "2 ..."
UNCHECKED = {"NB2DDP_CHECKS": "off"}
ON_ONE = {"CUDA_VISIBLE_DEVICES": "0,0"}
SETTINGS = {
    "2 unchecked": UNCHECKED,
    "2 host": {"NCCL_P2P_DISABLE": "1"},
    "shared": ON_ONE,
    "shared unchecked": ON_ONE | UNCHECKED,
}


def prepare(folder: Path, old: Path | None) -> None:
    """Write one notebook a case and convert it; with the scripts of the checkout ``old`` beside them."""
    import nbformat
    from nbformat.v4 import new_code_cell, new_notebook

    from nb2ddp import convert

    for name, case in CASES.items():
        here = folder / name.replace(" ", "_")
        here.mkdir(parents=True, exist_ok=True)
        data = case.get("data", f"{case['kind']}.jsonl")
        values = {
            "dtype": "None",
            "dropout": 0,
            "checkpointing": '"unsloth"',
            "max_length": 512,
            "options": "",
            "before": "",
            **case,
        }
        values |= {"data": f"../{data}", "model": f"../{case.get('model', 'model')}"}
        trainer = DPO if case["kind"] == "dpo" else SFT
        cells = [
            MODEL,
            *(text.format(**values) for text in (LOAD, DATA)),
            PROFILED_CLOCK if "uneven" in case and "every" not in case else CLOCK,
            trainer.format(**values),
            TRAIN,
            SAVE,
        ]
        nbformat.write(new_notebook(cells=[new_code_cell(cell) for cell in cells]), here / "notebook.ipynb")
        plain = "\n\n".join(cells)
        (here / "notebook.py").write_text(plain)
        for ranks in case.get("apart", ()):
            steps = f"accumulation_steps = {case['accumulation'] // ranks}"
            share = plain.replace(f"accumulation_steps = {case['accumulation']}", steps).replace(
                '"../', '"../../'
            )
            for rank in range(ranks):
                (here / f"rank{rank}_of_{ranks}").mkdir(exist_ok=True)
                (here / f"rank{rank}_of_{ranks}" / "notebook.py").write_text(share)
        conversion = convert(here / "notebook.ipynb")
        assert conversion.status == "converted", conversion.declined
        script = conversion.files["train_ddp.py"]
        (here / "train_ddp.py").write_text(script)
        support = conversion.files["ddp_support.py"]
        (here / "ddp_support.py").write_text(support)
        if "every" in case:
            on_one = support.replace("cuda:nccl", "cuda:gloo")
            beside(here / "shared", {"train_ddp.py": script, "ddp_support.py": on_one})
        if old:
            beside(here / "old", converted_by(old, here / "notebook.ipynb"))
    print(f"{len(CASES)} notebooks in {folder}")


def beside(folder: Path, files: dict[str, str]) -> None:
    """Write a script that runs one folder further down."""
    folder.mkdir(exist_ok=True)
    (folder / "train_ddp.py").write_text(files["train_ddp.py"].replace('"../', '"../../'))
    if "ddp_support.py" in files:  # scripts of older revisions hold it
        (folder / "ddp_support.py").write_text(files["ddp_support.py"])


def converted_by(checkout: Path, notebook: Path) -> dict[str, str]:
    """Convert with the package of another revision."""
    program = "import json, sys, nb2ddp; json.dump(nb2ddp.convert(sys.argv[1]).files, sys.stdout)"
    command = [sys.executable, "-c", program, str(notebook.resolve())]
    env = {**os.environ, "PYTHONPATH": str(checkout.resolve())}
    found = subprocess.run(command, cwd=checkout, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(found.stdout)


def make_models(folder: Path, names: set[str]) -> None:
    """Random Llamas: "model" of 0.8 billion parameters, "wide" of 3.4 in four wide layers, "deep" of 6.8 in eight,
    "widest" of 13.7 in four.

    Rows: of 50 to 300 tokens, rows that fill 512, and uneven ones (even.py's "sharegpt": log-normal, of 1,372
    tokens on average, to 4,096; and twice as long; and its "alpaca").
    """
    if all((folder / name).exists() for name in names):
        return
    import random

    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    rng = random.Random(0)
    words = [
        "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(2, 9)))
        for _ in range(3000)
    ]

    def text(count: int) -> str:
        return " ".join(rng.choice(words) for _ in range(count))

    # As many rows as the largest case takes in one epoch: none ends in a smaller batch.
    for name, count, fewest, most in (("sft", 3000, 30, 150), ("full", 5200, 400, 600)):
        with open(folder / f"{name}.jsonl", "w") as file:
            lines = (json.dumps({"text": text(rng.randint(fewest, most))}) for _ in range(count))
            file.writelines(f"{line}\n" for line in lines)
    uneven = (
        ("uneven", 700, 1372, 0.9, 4096),
        ("long", 330, 2744, 0.9, 8192),
        ("alpaca", 700, 230, 0.6, 1024),
    )
    for name, count, mean, sigma, most in uneven:
        with open(folder / f"{name}.jsonl", "w") as file:
            for _ in range(count):  # a word is a token, nearly
                words_of_row = round(rng.lognormvariate(math.log(mean) - sigma**2 / 2, sigma))
                file.write(json.dumps({"text": text(min(most, max(60, words_of_row)))}) + "\n")
    with open(folder / "dpo.jsonl", "w") as file:
        for _ in range(400):
            row = {"prompt": text(20), "chosen": text(60), "rejected": text(60)}
            file.write(json.dumps(row) + "\n")
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    special = ["<|bos|>", "<|eos|>", "<|pad|>"]
    bpe.train_from_iterator(
        (text(100) for _ in range(500)), trainers.BpeTrainer(vocab_size=8000, special_tokens=special)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token="<|bos|>",
        eos_token="<|eos|>",
        pad_token="<|pad|>",
        model_max_length=8192,
    )
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=2048, intermediate_size=5632, num_hidden_layers=16,
        num_attention_heads=32, num_key_value_heads=32, max_position_embeddings=2048,
        bos_token_id=0, eos_token_id=1, pad_token_id=2, tie_word_embeddings=True,
    )  # fmt: skip
    few_wide, more_wide, widest = (
        LlamaConfig(
            vocab_size=len(tokenizer), hidden_size=128 * heads, intermediate_size=448 * heads, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=8, max_position_embeddings=8192,
            bos_token_id=0, eos_token_id=1, pad_token_id=2, tie_word_embeddings=True,
        )
        for layers, heads in ((4, 64), (8, 64), (4, 128))
    )  # fmt: skip
    shapes = {"model": config, "wide": few_wide, "deep": more_wide, "widest": widest}
    for name, shape in [(name, shapes[name]) for name in sorted(names)]:
        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16)
        with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
            model = LlamaForCausalLM(shape)
        torch.set_default_dtype(torch.float32)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
        count = sum(p.numel() for p in model.parameters()) / 1e9
        print(f"{name}: {count:.2f} B parameters", flush=True)


def run(folder: Path, names: list[str], repeat: int, wanted: list[str]) -> None:
    """Run the cases one after the other and print a row for each run, then the ratios' median and spread."""
    models = {str(CASES[name].get("model", "model")) for name in names or CASES}
    program = f"import gpus, pathlib; gpus.make_models(pathlib.Path({str(folder)!r}), {models})"
    here = {
        **os.environ,
        "PYTHONPATH": f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    subprocess.run([sys.executable, "-c", program], env=here, check=True)  # this process holds no GPU
    import torch

    available = torch.cuda.device_count()
    single: dict[str, dict] = {}
    ratios: dict[str, dict[str, list[float]]] = {}
    print(
        f"{'case':24}{'GPUs':>17}{'s/step':>8}{'ratio':>7}{'max loss diff':>15}  losses, peak GB, exit",
        flush=True,
    )
    for name in names or CASES:
        case = CASES[name]
        here = folder / name.replace(" ", "_")
        rows = [str(gpus) for gpus in case["gpus"] if gpus <= available]
        if "uneven" in case:
            rows.insert(1, "again")
        rows += [row for row in SETTINGS if row in wanted]
        rows += [f"2 {kind}" for kind in BESIDE if (here / kind).exists() and available >= 2]
        fit = [count for count in case.get("apart", ()) if count <= available]
        if fit:
            rows.append("apart")
        for row in [row for row in rows if not wanted or row in wanted] * repeat:
            start = time.perf_counter()
            if row == "apart":
                results = together(here, max(fit))
            elif row == "again":
                results = [one(here, 1)]
            elif row in SETTINGS:
                results = [one(here / row.split()[0] if "shared" in row else here, 2, SETTINGS[row])]
            elif " " in row:
                results = [one(here / row[2:], 2)]
            else:
                results = [one(here, int(row))]
            wall = time.perf_counter() - start
            if None in results:
                print(f"{name:24}{row:>17}  failed after {wall:.0f} s, see the logs in {here}", flush=True)
                continue
            step = max(step_of(case, result) for result in results)
            result = results[0]
            before = single.get(name)
            if row == "1":
                single[name] = result
            base = single.get(name)
            ratio, difference = "", ""
            if base:
                found = step_of(case, base) / step
                ratios.setdefault(name, {}).setdefault(row, []).append(found)
                ratio = f"{found:.2f}"
            if base and (row.isdigit() or row == "again" or row[2:] in BESIDE):
                other = before if row == "1" and before else base
                pairs = zip(other["losses"], result["losses"], strict=True)
                difference = f"{max(abs(a - b) for a, b in pairs):.1e}"
            losses = result["losses"]
            print(
                f"{name:24}{row:>17}{step:>8.3f}{ratio:>7}{difference:>15}  "
                f"{losses[0]:.4f} {losses[-1]:.4f}  {result['peak_gb']:.2f}  ({wall:.0f} s)"
                + (f"  GPU busy {result['busy']:.0%}" if result["busy"] else ""),
                flush=True,
            )
    for name, of_rows in ratios.items() if repeat > 1 else ():
        for row, values in of_rows.items():
            spread = f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
            print(f"{name:24}{row:>17}  median ratio {spread}", flush=True)
    medians = {
        name: {row: statistics.median(values) for row, values in found.items()}
        for name, found in ratios.items()
    }
    plot(folder / "ratios.svg", medians)


def step_of(case: dict, result: dict) -> float:
    """The time of a usual step; of steps of unlike work, the mean; in a case "checks ...", the mean of them all."""
    if "every" in case:
        return statistics.mean(result["seconds"])
    if "uneven" in case:
        return statistics.mean(result["seconds"][9:-4])  # the last are profiled
    return statistics.median(result["seconds"][5:])


def devices() -> list[str]:
    """Return the GPUs to use: of four, say, two calls may each have two (CUDA_VISIBLE_DEVICES)."""
    import torch

    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",") if given else [str(n) for n in range(torch.cuda.device_count())]


def one(here: Path, gpus: int, settings: dict[str, str] | None = None) -> dict | None:
    """The notebook on one GPU, or its script on several; None when it failed."""
    env = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(devices()[:gpus]), **(settings or {})}
    torchrun = f"-m torch.distributed.run --standalone --nproc_per_node={gpus} train_ddp.py".split()
    (here / "result.json").unlink(missing_ok=True)
    with open(here / f"log{gpus}.txt", "w") as log:
        command = [sys.executable, *(["notebook.py"] if gpus == 1 else torchrun)]
        code = subprocess.run(command, cwd=here, env=env, stdout=log, stderr=subprocess.STDOUT).returncode
    return json.loads((here / "result.json").read_text()) if code == 0 else None


def together(here: Path, count: int) -> list[dict | None]:
    """One rank's share of the work on each of ``count`` GPUs at once, each on its own."""
    started = []
    for rank in range(count):
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": devices()[rank]}
        folder = here / f"rank{rank}_of_{count}"
        (folder / "result.json").unlink(missing_ok=True)
        with open(folder / "log.txt", "w") as log:
            command = [sys.executable, "notebook.py"]
            started.append(
                subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=subprocess.STDOUT)
            )
    codes = [process.wait() for process in started]
    return [
        json.loads((here / f"rank{rank}_of_{count}" / "result.json").read_text()) if code == 0 else None
        for rank, code in enumerate(codes)
    ]


def plot(path: Path, ratios: dict[str, dict[str, float]]) -> None:
    """How much faster on how many GPUs, a line for each case."""
    try:
        from matplotlib import pyplot
    except ImportError:
        return
    figure, axes = pyplot.subplots(figsize=(5, 4))
    most = 1
    for name, found in ratios.items():
        counts = [int(row) for row in found if row.isdigit()]
        most = max(most, *counts)
        if len(counts) > 1:
            axes.plot(counts, [found[str(count)] for count in counts], marker="o", label=name)
        if "apart" in found:
            axes.plot(
                [max(counts)], [found["apart"]], marker="_", markersize=16, color="grey", linestyle="none"
            )
    axes.plot([1, most], [1, most], color="lightgrey", linestyle="--", zorder=0)
    axes.set(xlabel="GPUs", ylabel="times as fast as one", xticks=range(1, most + 1))
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False)
    figure.savefig(path, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["prepare", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("cases", nargs="*", help=", ".join(CASES))
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--rows", default="")
    parser.add_argument("--old", type=Path)
    arguments = parser.parse_args()
    if arguments.what == "prepare":
        prepare(arguments.folder, arguments.old)
    else:
        run(
            arguments.folder,
            arguments.cases,
            arguments.repeat,
            [row for row in arguments.rows.split(",") if row],
        )


if __name__ == "__main__":
    main()
