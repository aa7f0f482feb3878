"""Uneven rows on two ranks: today's shares of a step, even ones, and what machine and arithmetic allow.

    python benchmarks/even.py count                    the ratios that counting tokens gives (no training)
    python benchmarks/even.py cpu FOLDER [CASE ...]    two CPU cores, a rank pinned to each, fp32
    python benchmarks/even.py gpu FOLDER [CASE ...]    two GPUs, real Unsloth, QLoRA
                              [--steps N] [--repeats N] [--variants a,b]

Processes live through all runs of a case and take turns, so that what a process pays once (allocator, pinned
buffers, kernels that are compiled, loaded or planned for a length) is seen apart from what each step costs:
the first pass is shown as "cold", the median of the others with its spread as the result. The variants:

``solo``      the notebook's batch in one process
``plain``     micro-batches in the notebook's order, taken in turns: what Accelerate does
``sorted``    longest first to the rank with the fewest tokens, each rank's share in sorted micro-batches;
              ``sorted_last`` with the longest micro-batch last, ``sorted_cost`` with attention counted
``unsorted``  the same, each rank's share in the notebook's order
``even``      nb2ddp's shares with equal numbers of rows a micro-batch; ``even_last`` as above
``free``      nb2ddp's shares for a loss that is a mean over the step's tokens: any number of rows
``apart``     two single processes at once, each with a rank's ``plain`` share and no waiting: this is what
              the machine allows with those shares; others may exceed it

``tokens`` is what arithmetic allows: the tokens (padding included) that solo computes over those of the rank
with the most, step by step.

Beside wall time there is the ratio of CPU time (``time.process_time``): solo's over the sum, over the steps,
of the slowest rank's. It leaves out what other programs take from the two cores.

Lengths. The data set card of vicgalle/alpaca-gpt4 says 88,566,301 bytes for 52,002 rows, in which the column
``text`` repeats the others under the template: some 950 bytes of text a row, at 4.1 bytes a token 230 tokens.
ShareGPT: 3.2 rounds of 71.0 and 357.8 tokens (Wang et al. 2023, "How Far Can Camels Go?", table 1). The shape
is not published; it is taken as log-normal with a sigma of 0.6 (0.9 for ShareGPT), cut at the longest row
that a notebook might set.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from nb2ddp.runtime.even_shares import _share_evenly as share_evenly

# mean tokens of a row, sigma of their logarithm, shortest, longest
LENGTHS = {
    "alpaca": (230.0, 0.6, 40, 1024),
    "sharegpt": (3.2 * (71.0 + 357.8), 0.9, 60, 8192),
    "equal": (512.0, 0.0, 512, 512),
}


@dataclass
class Case:
    """A model, the lengths of its rows, and the notebook's batch."""

    lengths: str
    batch: int
    accumulation: int
    hidden: int
    layers: int
    intermediate: int
    heads: int
    vocabulary: int = 8000
    padded: bool = True
    offload: bool = True  # Unsloth's checkpoints on the host, or kept on the GPU


SMALL = dict(hidden=256, layers=4, intermediate=688, heads=4, vocabulary=2000)
WIDE = dict(hidden=8192, layers=4, intermediate=28672, heads=64)  # few launches, much arithmetic
DEEP = dict(hidden=2560, layers=28, intermediate=6912, heads=20)  # 2.4 B parameters as usual: many launches
CASES = {
    "cpu 2x4": Case("alpaca", 2, 4, **SMALL),
    "cpu 8x4": Case("alpaca", 8, 4, **SMALL),
    "cpu equal 2x4": Case("equal", 2, 4, **SMALL),
    "tiny": Case("alpaca", 2, 4, hidden=64, layers=2, intermediate=176, heads=2, padded=False),
    "wide": Case("sharegpt", 2, 4, padded=False, **WIDE),
    "wide kept": Case("sharegpt", 2, 4, padded=False, offload=False, **WIDE),
    "wide padded": Case("alpaca", 8, 4, padded=True, **WIDE),
    "wide padded 2x4": Case("sharegpt", 2, 4, padded=True, **WIDE),
    "deep": Case("sharegpt", 2, 4, padded=False, **DEEP),
    "deep alpaca": Case("alpaca", 2, 4, padded=False, **DEEP),
}

Plan = list[list[list[int]]]  # one process's steps, each a list of micro-batches of rows


def draw_lengths(name: str, count: int, seed: int = 3407) -> list[int]:
    mean, sigma, shortest, longest = LENGTHS[name]
    rng = random.Random(seed)
    mu = math.log(mean) - sigma * sigma / 2
    return [min(longest, max(shortest, round(rng.lognormvariate(mu, sigma)))) for _ in range(count)]


# --- the shares of a step ----------------------------------------------------------------------------------


def chunks(rows: list[int], size: int) -> list[list[int]]:
    return [rows[start : start + size] for start in range(0, len(rows), size)]


def handed_out(rows: list[int], lengths: list[int], ranks: int, quadratic: float = 0.0) -> list[list[int]]:
    """The form first tried: longest first to the rank with the fewest tokens, equally many to each."""
    held: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0.0] * ranks
    for row in sorted(rows, key=lambda row: -lengths[row]):
        free = [rank for rank in range(ranks) if len(held[rank]) < len(rows) // ranks]
        rank = min(free, key=lambda rank: loads[rank])
        held[rank].append(row)
        loads[rank] += lengths[row] + quadratic * lengths[row] ** 2
    return held


def shares(
    variant: str, rows: list[int], lengths: list[int], ranks: int, case: Case
) -> list[list[list[int]]]:
    """Each rank's micro-batches of one step's rows."""
    if variant in ("plain", "apart"):
        batches = chunks(rows, case.batch)
        return [batches[rank::ranks] for rank in range(ranks)]
    if variant.startswith("sorted"):
        held = handed_out(rows, lengths, ranks, 1 / (6 * case.hidden) if "cost" in variant else 0.0)
        found = [chunks(sorted(share, key=lambda row: -lengths[row]), case.batch) for share in held]
        return [share[::-1] for share in found] if "last" in variant else found
    if variant == "unsorted":
        return [chunks(sorted(share), case.batch) for share in handed_out(rows, lengths, ranks)]
    assert variant in ("even", "free", "even_last"), variant
    found = share_evenly(
        [lengths[row] for row in rows],
        ranks,
        case.batch,
        padded=case.padded,
        equal_counts=variant != "free",
        longest=LENGTHS[case.lengths][3],
    )
    plan = [[[rows[place] for place in batch] for batch in share] for share in found]
    return [share[::-1] for share in plan] if "last" in variant else plan


def plans(variant: str, case: Case, lengths: list[int], steps: int, ranks: int) -> list[Plan]:
    """Each rank's plan; a solo run has one."""
    size = case.batch * case.accumulation
    found: list[Plan] = [[] for _ in range(1 if variant == "solo" else ranks)]
    for step in range(steps):
        rows = list(range(step * size, (step + 1) * size))
        if variant == "solo":
            found[0].append(chunks(rows, case.batch))
        else:
            for plan, share in zip(found, shares(variant, rows, lengths, ranks, case), strict=True):
                plan.append(share)
    return found


def tokens(batch: list[int], lengths: list[int], padded: bool) -> int:
    rows = [lengths[row] for row in batch]
    return len(rows) * max(rows) if padded else sum(rows)


def counted_ratio(variant: str, case: Case, lengths: list[int], steps: int, ranks: int = 2) -> float:
    """Solo's tokens over those of the busiest rank of each step."""

    def work(plan: Plan) -> list[int]:
        return [sum(tokens(batch, lengths, case.padded) for batch in step) for step in plan]

    solo = sum(work(plans("solo", case, lengths, steps, 1)[0]))
    ranked = [work(plan) for plan in plans(variant, case, lengths, steps, ranks)]
    return solo / sum(map(max, zip(*ranked, strict=True)))


def count() -> None:
    """Print what arithmetic allows."""
    print(f"{'lengths':10}{'batch':>7}{'ranks':>6}{'':>14}{'plain':>7}{'sorted':>8}{'even':>7}{'free':>7}")
    for name in LENGTHS:
        for batch, accumulation in ((2, 4), (8, 4), (1, 8), (4, 4)):
            for ranks in (2, 4):
                for padded in (True, False):
                    case = Case(name, batch, accumulation, 4096, 1, 1, 1, padded=padded)
                    lengths = draw_lengths(name, 200 * batch * accumulation)
                    found = [
                        counted_ratio(variant, case, lengths, 200, ranks)
                        for variant in ("plain", "sorted", "even", "free")
                    ]
                    form = "padded" if padded else "padding-free"
                    figures = "".join(f"{ratio:7.2f}" for ratio in found)
                    print(f"{name:10}{batch:>5}x{accumulation}{ranks:>6}{form:>14}{figures}")


# --- a process that trains ---------------------------------------------------------------------------------


class Worker:
    """Hold a model and a Trainer; run plans."""

    def __init__(self, case: Case, model: str, lengths: list[int], unsloth: bool) -> None:
        import torch

        self.torch, self.case, self.lengths, self.unsloth = torch, case, lengths, unsloth
        self.rank = int(os.environ.get("RANK", "0"))
        self.ranks = int(os.environ.get("WORLD_SIZE", "1"))
        if torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
            torch.backends.cuda.enable_cudnn_sdp(os.environ.get("EVEN_CUDNN", "1") == "1")
        else:
            torch.set_num_threads(1)
        self.trainer = self.unsloth_trainer(model) if unsloth else self.plain_trainer(model)
        self.trainer.get_train_dataloader = self.loader
        self.trainer.add_callback(self.clock())
        self.first = {
            name: value.detach().clone()
            for name, value in self.trainer.model.named_parameters()
            if value.requires_grad
        }
        self.compiled = 0
        self.watch_triton()
        self.time_micro_batches()

    def arguments(self) -> dict[str, Any]:
        return dict(
            per_device_train_batch_size=self.case.batch,
            gradient_accumulation_steps=self.case.accumulation // self.ranks,
            max_steps=10**6, learning_rate=1e-4, warmup_steps=0, logging_steps=1, seed=3407,
            output_dir=f"out{os.getpid()}", save_strategy="no", report_to="none", disable_tqdm=True,
        )  # fmt: skip

    def rows(self) -> Any:
        from datasets import Dataset

        rng = random.Random(1)
        most = self.case.vocabulary - 1
        ids = [[rng.randint(3, most) for _ in range(length)] for length in self.lengths]
        return Dataset.from_dict({"input_ids": ids, "labels": ids})

    def plain_trainer(self, model: str) -> Any:
        from transformers import LlamaForCausalLM, Trainer, TrainingArguments

        torch = self.torch

        def collate(rows: list[dict[str, list[int]]]) -> dict[str, Any]:
            longest = max(len(row["input_ids"]) for row in rows)

            def pad(name: str, value: int) -> Any:
                return torch.tensor([row[name] + [value] * (longest - len(row[name])) for row in rows])

            ids, labels = pad("input_ids", 2), pad("labels", -100)
            return {"input_ids": ids, "labels": labels, "attention_mask": (labels != -100).long()}

        arguments = TrainingArguments(
            use_cpu=True, optim="adamw_torch", ddp_find_unused_parameters=False, **self.arguments()
        )
        network = LlamaForCausalLM.from_pretrained(model, dtype=torch.float32, attn_implementation="sdpa")
        return Trainer(model=network, args=arguments, train_dataset=self.rows(), data_collator=collate)

    def unsloth_trainer(self, model: str) -> Any:
        from unsloth import FastLanguageModel  # isort: skip
        from trl import SFTConfig, SFTTrainer

        network, tokenizer = FastLanguageModel.from_pretrained(
            model_name=model,
            max_seq_length=8192,
            load_in_4bit=self.torch.cuda.is_available(),
            device_map={"": int(os.environ.get("LOCAL_RANK", "0"))}
            if self.torch.cuda.is_available()
            else None,
        )
        network = FastLanguageModel.get_peft_model(
            network, r=16, lora_alpha=16, lora_dropout=0, random_state=3407,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
            use_gradient_checkpointing="unsloth" if self.case.offload else True,
        )  # fmt: skip
        options = {"padding_free": False} if self.case.padded else {}
        arguments = SFTConfig(
            max_length=8192,
            optim="adamw_8bit" if self.torch.cuda.is_available() else "adamw_torch",
            ddp_find_unused_parameters=False,
            **options,
            **self.arguments(),
        )
        rows = self.rows().remove_columns("labels")
        trainer = SFTTrainer(model=network, processing_class=tokenizer, train_dataset=rows, args=arguments)
        padding_free = bool(getattr(trainer.data_collator, "padding_free", False))
        if padding_free == self.case.padded:
            print(f"WARNING: padding_free is {padding_free}")
        return trainer

    def loader(self) -> Any:
        from accelerate.data_loader import DataLoaderShard

        trainer = self.trainer
        rows = trainer.train_dataset
        if self.unsloth:
            kept = [name for name in rows.column_names if name in ("input_ids", "seq_lengths")]
            rows = rows.select_columns(kept)
        return DataLoaderShard(
            rows,
            device=trainer.args.device,
            batch_sampler=self.batches,
            collate_fn=trainer.data_collator,
            pin_memory=self.torch.cuda.is_available(),
        )

    def clock(self) -> Any:
        from transformers import TrainerCallback

        worker = self

        class Clock(TrainerCallback):
            def on_step_end(self, *args: Any, **kwargs: Any) -> None:
                worker.step_ends()

        return Clock()

    def watch_triton(self) -> None:
        """Count Triton's compilations."""
        try:
            from triton import knobs

            def compiled(*args: Any, **kwargs: Any) -> None:
                self.compiled += 1

            knobs.runtime.jit_post_compile_hook = compiled
        except Exception as problem:
            print("triton's compilations are not counted:", problem)

    def time_micro_batches(self) -> None:
        """Note for each micro-batch how long the host took to launch it and the GPU to compute it."""
        training_step, torch = self.trainer.training_step, self.torch
        self.micro: list[Any] = []

        def timed(*args: Any, **kwargs: Any) -> Any:
            gpu = torch.cuda.is_available()
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)] if gpu else []
            start = time.perf_counter()
            if gpu:
                events[0].record()
            loss = training_step(*args, **kwargs)
            if gpu:
                events[1].record()
            self.micro.append((time.perf_counter() - start, events))
            return loss

        self.trainer.training_step = timed

    def step_ends(self) -> None:
        if self.torch.cuda.is_available():
            self.torch.cuda.synchronize()
        self.ends.append((time.perf_counter(), time.process_time()))
        self.states.append(self.state())
        if self.profiler is not None:
            self.profiler.step()

    def state(self) -> dict[str, float]:
        """What a process pays once: allocations on the GPU and of pinned memory, compilations."""
        torch = self.torch
        if not torch.cuda.is_available():
            return {}
        memory = torch.cuda.memory_stats()
        found = {
            "allocs": memory.get("num_device_alloc", 0),
            "frees": memory.get("num_device_free", 0),
            "retries": memory.get("num_alloc_retries", 0),
            "reserved": memory.get("reserved_bytes.all.current", 0) / 2**30,
            "triton": self.compiled,
        }
        try:
            host = torch.cuda.host_memory_stats()
            found["pinned"] = host.get("allocated_bytes.current", 0) / 2**30
            found["pins"] = host.get("num_host_alloc", 0)
            found["pin_ms"] = host.get("host_alloc_time.total", 0) / 1e3
        except Exception:
            pass
        from torch._dynamo.utils import counters

        found["graphs"] = counters["stats"].get("unique_graphs", 0)
        return found

    def run(self, plan: Plan, profile: int = 0) -> dict[str, Any]:
        """Train the plan's steps from the first weights; return each step's times."""
        torch, trainer = self.torch, self.trainer
        with torch.no_grad():
            for name, value in trainer.model.named_parameters():
                if name in self.first:
                    value.copy_(self.first[name])
                    value.grad = None
        self.batches = [batch for step in plan for batch in step]
        trainer.args.max_steps = len(plan)
        trainer.args.gradient_accumulation_steps = len(plan[0])
        trainer.optimizer = trainer.lr_scheduler = None
        self.ends, self.states, self.micro, self.profiler = [], [], [], None
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        if profile:
            from torch.profiler import ProfilerActivity, schedule
            from torch.profiler import profile as profiler

            self.kernels: list[tuple[str, int, int]] = []
            with profiler(
                activities=[ProfilerActivity.CUDA],
                schedule=schedule(wait=len(plan) - profile - 2, warmup=1, active=profile, repeat=1),
                on_trace_ready=self.keep_kernels,
            ) as self.profiler:
                trainer.train()
        else:
            trainer.train()
        history = trainer.state.log_history
        micro = [
            (host, events[0].elapsed_time(events[1]) / 1e3 if events else host) for host, events in self.micro
        ]
        sizes = [tokens(batch, self.lengths, self.case.padded) for batch in self.batches]
        pairs = list(zip(self.ends, self.ends[1:], strict=False))
        result = {
            "losses": [row["loss"] for row in history if "loss" in row][-len(plan) :],
            "wall": [after[0] - before[0] for before, after in pairs],
            "cpu": [after[1] - before[1] for before, after in pairs],
            "micro": [
                (size, round(host, 4), round(gpu, 4)) for size, (host, gpu) in zip(sizes, micro, strict=False)
            ],
            "states": [self.states[0], self.states[len(self.states) // 2], self.states[-1]],
            "digest": self.digest(),
        }
        if torch.cuda.is_available():
            result["peak"] = torch.cuda.max_memory_allocated() / 2**30
        if profile:
            result["profile"] = self.summary(profile)
        return result

    def digest(self) -> str:
        import hashlib

        found = hashlib.sha256()
        for name, value in self.trainer.model.named_parameters():
            if name in self.first:
                found.update(value.detach().float().cpu().numpy().tobytes())
        return found.hexdigest()[:12]

    def keep_kernels(self, profiler: Any) -> None:
        for event in profiler.profiler.kineto_results.events():
            if "CUDA" in str(event.device_type()) and event.duration_ns() > 0:
                self.kernels.append((event.name(), event.start_ns(), event.duration_ns()))

    def summary(self, steps: int) -> dict[str, Any]:
        """The GPU's busy share, the gaps between its kernels, and where its time went."""
        found = sorted(
            (kernel for kernel in self.kernels if "ProfilerStep" not in kernel[0]), key=lambda k: k[1]
        )
        if not found:
            return {}
        begin, end = found[0][1], max(start + duration for _, start, duration in found)
        groups: dict[str, float] = {}
        names: dict[str, float] = {}
        busy, covered, gaps = 0.0, begin, []
        computing = 0.0
        upto = begin
        for name, start, duration in found:
            lower = name.lower()
            group = "nccl" if "nccl" in lower else "copy" if "mem" in lower[:6] else "kernel"
            groups[group] = groups.get(group, 0.0) + duration / 1e9
            names[name[:60]] = names.get(name[:60], 0.0) + duration / 1e9
            if start > covered:
                gaps.append((start - covered) / 1e9)
            busy += max(start + duration - max(start, covered), 0) / 1e9
            covered = max(covered, start + duration)
            if group == "kernel":
                computing += max(start + duration - max(start, upto), 0) / 1e9
                upto = max(upto, start + duration)
        return {
            "window": (end - begin) / 1e9 / steps,
            "busy": busy / ((end - begin) / 1e9),
            "computing": computing / ((end - begin) / 1e9),
            "kernels": len(found) // steps,
            "gaps_over_1ms": round(sum(gap for gap in gaps if gap > 1e-3) / steps, 4),
            "gaps_under_1ms": round(sum(gap for gap in gaps if gap <= 1e-3) / steps, 4),
            **{f"{group}_s": round(seconds / steps, 4) for group, seconds in groups.items()},
            "top": sorted(((round(s / steps, 4), n) for n, s in names.items()), reverse=True)[:8],
        }


def work(case: str, model: str, count: int, unsloth: bool, answer: int) -> None:
    """Run what the parent asks for, a line of JSON each."""
    found = Worker(CASES[case], model, draw_lengths(CASES[case].lengths, count), unsloth)
    with os.fdopen(answer, "w", buffering=1) as out:
        out.write("{}\n")
        for line in sys.stdin:
            asked = json.loads(line)
            out.write(json.dumps(found.run(asked["plan"], asked.get("profile", 0))) + "\n")
    sys.stdout.flush()
    os._exit(0)


# --- the parent --------------------------------------------------------------------------------------------


class Process:
    """A worker of its own, on a core or a GPU."""

    def __init__(
        self, folder: Path, name: str, case: str, model: Path, count: int, unsloth: bool, env: dict[str, str]
    ) -> None:
        read, write = os.pipe()
        here = folder / name.replace(" ", "_")
        here.mkdir(parents=True, exist_ok=True)
        self.core = int(env.pop("CORE", "-1"))
        command = [sys.executable, str(Path(__file__).resolve()), "work", case, str(model)]
        command += [str(count), str(int(unsloth)), str(write)]
        with open(here / "log", "w") as log:
            env = {**os.environ, **env, "UNSLOTH_COMPILE_LOCATION": str(here / "compiled")}
            self.process = subprocess.Popen(
                command, cwd=here, env=env,
                stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, pass_fds=[write], text=True,
            )  # fmt: skip
        os.close(write)
        if self.core >= 0:
            os.sched_setaffinity(self.process.pid, {self.core})
        self.answers = os.fdopen(read)
        self.name = f"{name} ({here}/log)"

    def ask(self, plan: Plan, profile: int = 0) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"plan": plan, "profile": profile}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        line = self.answers.readline()
        if not line:
            raise SystemExit(f"{self.name} has ended with {self.process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Processes:
    """The processes of a case: one or two alone, and pairs of ranks."""

    def __init__(
        self, folder: Path, case: str, model: Path, count: int, unsloth: bool, alone: int, pairs: int
    ) -> None:
        cores = sorted(os.sched_getaffinity(0))  # `taskset` chooses others on a larger machine

        def start(name: str, place: int, env: dict[str, str]) -> Process:
            where = {"CUDA_VISIBLE_DEVICES": str(place)} if unsloth else {"CORE": str(cores[place])}
            return Process(folder, name, case, model, count, unsloth, {**where, **env})

        both = {"CUDA_VISIBLE_DEVICES": "0,1"} if unsloth else {}
        self.alone = [start(f"{case} alone {place}", place, {}) for place in range(alone)]
        self.pairs = []
        for pair in range(pairs):
            group = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
            group["MASTER_PORT"] = str(29600 + os.getpid() % 300 + 7 * pair)
            ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank), **group, **both} for rank in range(2)]
            self.pairs.append(
                [start(f"{case} pair {pair} rank {rank}", rank, env) for rank, env in enumerate(ranks)]
            )
        self.all = [*self.alone, *(process for pair in self.pairs for process in pair)]
        for process in self.all:
            process.answer()

    def run(self, variant: str, found: list[Plan], profile: int = 0, pair: int = 0) -> list[dict[str, Any]]:
        chosen = self.alone[: len(found)] if variant in ("solo", "apart") else self.pairs[pair]
        for process, plan in zip(chosen, found, strict=True):
            process.ask(plan, profile)
        return [process.answer() for process in chosen]

    def end(self) -> None:
        for process in self.all:
            process.end()


def seconds(results: list[dict[str, Any]], kind: str, apart: bool = False) -> float:
    """A run's time: the sum over the steps of the slowest rank's; apart, the slower process's sum."""
    if apart:
        return max(sum(result[kind]) for result in results)
    return sum(max(step) for step in zip(*(result[kind] for result in results), strict=True))


def make_model(folder: Path, case: Case, gpu: bool) -> Path:
    """A random Llama with a tokenizer that knows its special tokens."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    path = folder / f"model_{case.hidden}_{case.layers}"
    if path.exists():
        return path
    words = ["<|bos|>", "<|eos|>", "<|pad|>", *(f"w{number}" for number in range(case.vocabulary - 3))]
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=8192, **special)
    config = LlamaConfig(
        vocab_size=case.vocabulary, hidden_size=case.hidden, intermediate_size=case.intermediate,
        num_hidden_layers=case.layers, num_attention_heads=case.heads,
        num_key_value_heads=max(case.heads // 8, 1) if case.heads % 8 == 0 else case.heads,
        max_position_embeddings=8192, bos_token_id=0, eos_token_id=1, pad_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16 if gpu else torch.float32)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(config)
    torch.set_default_dtype(torch.float32)
    model.save_pretrained(path)
    fast.save_pretrained(path)
    print(f"{sum(p.numel() for p in model.parameters()) / 1e9:.3f} B parameters", flush=True)
    return path


def measure(folder: Path, name: str, options: argparse.Namespace, unsloth: bool) -> None:
    """Run a case's variants in turns and print their ratios."""
    case = CASES[name]
    folder.mkdir(parents=True, exist_ok=True)
    made = [sys.executable, str(Path(__file__).resolve()), "model", str(folder), name, str(int(unsloth))]
    subprocess.run(made, check=True)  # in a process of its own: the parent holds no GPU
    model = folder / f"model_{case.hidden}_{case.layers}"
    steps = options.steps
    lengths = draw_lengths(case.lengths, steps * case.batch * case.accumulation)
    variants = options.variants.split(",")
    start = time.perf_counter()
    alone = 2 if "apart" in variants else 1
    pairs = 1 + sum(map(bool, options.cold.split(",")))
    processes = Processes(folder, name, model, len(lengths), unsloth, alone, pairs)
    print(f"{name}: {steps} steps; processes ready after {time.perf_counter() - start:.0f} s", flush=True)
    everything: dict[str, list[list[dict[str, Any]]]] = {}
    for repeat in range(options.repeats + 1):
        turn = ["solo", *variants]
        if repeat % 2:
            turn.reverse()
        for variant in turn:
            found = plans(variant, case, lengths, steps, 2)
            cold = options.cold.split(",")
            pair = 0  # or, for a first pass, processes that have run nothing else
            if repeat == 0 and variant in cold:
                pair = 1 + cold.index(variant)
            profile = options.profile if repeat == options.repeats else 0
            results = processes.run(variant, found, profile, pair)
            everything.setdefault(variant, []).append(results)
            show(
                variant, repeat, results, everything["solo"][0][0]["losses"] if "solo" in everything else None
            )
    table(name, case, everything, lengths, steps)
    (folder / f"{name.replace(' ', '_')}.json").write_text(json.dumps(everything))
    processes.end()


def show(variant: str, repeat: int, results: list[dict[str, Any]], losses: list[float] | None) -> None:
    wall = seconds(results, "wall", variant == "apart")
    cpu = seconds(results, "cpu", variant == "apart")
    line = f"  {repeat} {variant:12}{wall:8.2f} s  CPU {cpu:.2f} s"
    if variant != "apart" and losses:
        pairs = zip(results[0]["losses"], losses, strict=True)
        line += f"  loss diff {max(abs(a - b) for a, b in pairs):.1e}"
    if len({result["digest"] for result in results}) > 1 and variant != "apart":
        line += "  RANKS DIFFER"
    if "peak" in results[0]:
        line += f"  peak {max(result['peak'] for result in results):.2f} GiB"
    for result in results:
        states = result["states"]
        if states[0]:
            grown = {key: round(states[-1][key] - states[0][key], 2) for key in states[0]}
            grown = {key: value for key, value in grown.items() if value}
            now = f"{states[-1]['reserved']:.1f} GiB reserved, {states[-1].get('pinned', 0):.1f} pinned"
            line += f"\n      {grown} now {now}"
        if result.get("profile"):
            found = dict(result["profile"])
            top = found.pop("top")
            line += f"\n      {found}\n      {top}"
    print(line, flush=True)


def table(
    name: str,
    case: Case,
    everything: dict[str, list[list[dict[str, Any]]]],
    lengths: list[int],
    steps: int,
) -> None:
    """Print each variant's ratio to the solo runs of the same round: median and spread."""
    print(f"{name}{'':14}{'tokens':>8}{'cold':>7}{'wall':>7}{'spread':>16}{'CPU':>7}{'spread':>16}")
    for variant, rounds in everything.items():
        line = f"  {variant:14}"
        line += f"{counted_ratio(variant, case, lengths, steps):8.2f}" if variant != "solo" else f"{'':8}"
        for kind in ("wall", "cpu"):
            apart = variant == "apart"
            ratios = [
                seconds(solo, kind) / seconds(found, kind, apart)
                for solo, found in zip(everything["solo"], rounds, strict=True)
            ]
            if kind == "wall":
                line += f"{ratios[0]:7.2f}"
            later = ratios[1:] or ratios
            spread = f"({min(later):.2f} to {max(later):.2f})"
            line += f"{statistics.median(later):7.2f}{spread:>16}"
        print(line, flush=True)


def main() -> None:
    if sys.argv[1] == "work":
        case, model, count_, unsloth, answer = sys.argv[2:]
        work(case, model, int(count_), bool(int(unsloth)), int(answer))
        return
    if sys.argv[1] == "model":
        make_model(Path(sys.argv[2]), CASES[sys.argv[3]], bool(int(sys.argv[4])))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["count", "cpu", "gpu"])
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=5, help="rounds after the first, cold one")
    parser.add_argument("--variants", default="plain,sorted,even,free,apart")
    parser.add_argument("--cold", default="", help="variants whose first pass has a pair of ranks of its own")
    parser.add_argument("--profile", type=int, default=0, help="steps to profile in the last round")
    options = parser.parse_args()
    if options.what == "count":
        count()
        return
    unsloth = options.what == "gpu"
    for name in options.cases or (["wide", "deep"] if unsloth else ["cpu 2x4", "cpu 8x4"]):
        measure(options.folder.resolve(), name, options, unsloth)


if __name__ == "__main__":
    main()
