"""Notebooks of any kind on one GPU, and their scripts on two: the same losses, equal ranks, the same files?

    python benchmarks/kinds.py prepare FOLDER [NOTEBOOK...]    convert them (needs nb2ddp, no GPU)
    python benchmarks/kinds.py run FOLDER [--gpus 2]           run both forms of each, print the table
                               [--nodes 2]         a torchrun for each node, all on this machine, which NCCL
                                                   takes for several hosts that talk over the network

Without notebooks: those of benchmarks/notebooks, and of tests/notebooks those that a CPU cannot show whole.
The two halves may run on different machines: FOLDER holds all that the second needs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent
KINDS = ["tests/notebooks/grpo.ipynb", "tests/notebooks/vision.ipynb", "tests/notebooks/dpo.ipynb"]
SKIPPED = ("hf", "unsloth_compiled_cache", "__pycache__", "script.py")


def prepare(folder: Path, notebooks: list[Path]) -> None:
    """Write each notebook's own code and its script."""
    import nbformat

    from nb2ddp import convert

    for notebook in notebooks or [
        *sorted((ROOT / "benchmarks/notebooks").glob("*.ipynb")),
        *map(ROOT.joinpath, KINDS),
    ]:
        here = folder / notebook.stem
        shutil.rmtree(here, ignore_errors=True)
        cells = nbformat.read(notebook, as_version=4).cells
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        conversion = convert(notebook)
        assert conversion.status == "converted", conversion.declined
        plain = re.sub(r"^(\s*)[!%].*", r"\1pass", code, flags=re.MULTILINE)
        for form, text in (("one", plain), ("ddp", conversion.files["train_ddp.py"])):
            (here / form).mkdir(parents=True)
            (here / form / "script.py").write_text(text)
            (here / form / "ddp_support.py").write_text(conversion.files["ddp_support.py"])
    shutil.copytree(ROOT / "tests" / "support" / "harness", folder / "harness", dirs_exist_ok=True)
    print(f"{folder} is ready")


def run(folder: Path, gpus: int, nodes: int) -> None:
    """One row for each notebook: exit codes, losses, and whether the ranks and the files agree."""
    print(
        f"{'notebook':24}{'exit':>6}{'steps':>7}{'loss diff':>11}  {'ranks':8}{'files':8}{'seconds':>10}",
        flush=True,
    )
    for here in sorted(path.parent for path in folder.glob("*/one")):
        start = time.perf_counter()
        codes = [launch(here, "one", 1), launch(here, "ddp", gpus, nodes)]
        seconds = time.perf_counter() - start
        row = f"{here.name:24}{'/'.join(map(str, codes)):>6}"
        if any(codes):
            print(f"{row}  see {here}/*.log", flush=True)
            continue
        single, double = (
            json.loads((here / f"{form}-watch" / f"losses-{rank}.json").read_text())
            for form, rank in (("one", "single"), ("ddp", 0))
        )
        pairs = zip(single, double, strict=True)
        difference = max((abs(a - b) / max(abs(a), 1e-6) for a, b in pairs), default=0.0)
        ranks = "equal" if equal_ranks(here / "ddp-watch", gpus) else "DIFFER"
        files = "same" if saved(here / "one") == saved(here / "ddp") else "OTHER"
        print(f"{row}{len(single):>7}{difference:>11.1e}  {ranks:8}{files:8}{seconds:>10.0f}", flush=True)


def launch(here: Path, form: str, gpus: int, nodes: int = 1) -> int:
    """Run a form of a notebook, watched from inside; its output is in a log beside it.

    ``gpus`` are those of all nodes together.
    """
    watch = here / f"{form}-watch"
    shutil.rmtree(watch, ignore_errors=True)
    watch.mkdir()
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = given.split(",") if given else [str(index) for index in range(gpus)]
    paths = [str(here.parent / "harness"), os.environ.get("PYTHONPATH", "")]
    env = {
        **os.environ,
        "NB2DDP_WATCH": str(watch.resolve()),
        "PYTHONPATH": os.pathsep.join(
            str(Path(path).resolve()) for paths_ in paths for path in paths_.split(os.pathsep) if path
        ),
        "HF_HUB_OFFLINE": "1",
    }
    torchrun = ["-m", "torch.distributed.run", f"--nproc_per_node={gpus // nodes}"]
    torchrun += ["--master_addr=127.0.0.1", "--master_port=29511"] if nodes > 1 else ["--standalone"]
    started = []
    for node in range(nodes):
        env["CUDA_VISIBLE_DEVICES"] = ",".join(visible[node * gpus // nodes : (node + 1) * gpus // nodes])
        if (
            nodes > 1
        ):  # NCCL tells hosts by these names, and uses neither shared memory nor NVLink between them
            env |= {"NCCL_HOSTID": f"node{node}", "NCCL_SOCKET_IFNAME": "lo"}
        command = [sys.executable, *torchrun, f"--nnodes={nodes}", f"--node_rank={node}", "script.py"]
        if form == "one":
            command = [sys.executable, "script.py"]
        with open(here / f"{form}{node or ''}.log", "w") as log:
            started.append(
                subprocess.Popen(command, cwd=here / form, env=env, stdout=log, stderr=subprocess.STDOUT)
            )
    return max((process.wait() for process in started), key=abs)


def equal_ranks(watch: Path, gpus: int) -> bool:
    """Whether all ranks hold the same trained parameters, bit for bit."""
    import torch

    first, *others = (torch.load(watch / f"parameters-{rank}.pt", map_location="cpu") for rank in range(gpus))
    return all(torch.equal(value, other[name]) for other in others for name, value in first.items())


def saved(form: Path) -> set[str]:
    """What lies in the working folder at the end, without caches and each rank's random state."""
    paths = (path.relative_to(form) for path in form.rglob("*") if path.is_file())
    return {str(path) for path in paths if path.parts[0] not in SKIPPED and "rng_state" not in path.name}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["prepare", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--nodes", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.what == "prepare":
        prepare(arguments.folder, arguments.notebooks)
    else:
        run(arguments.folder.resolve(), arguments.gpus, arguments.nodes)


if __name__ == "__main__":
    main()
