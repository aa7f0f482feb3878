"""The notebooks of gpus.py: their cells, and how each case fills them."""

from __future__ import annotations

MODEL = '''\
import json, os, random
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["UNSLOTH_DISABLE_STATISTICS"] = "1"'''

LOAD = """\
from unsloth import FastLanguageModel
import torch, time
{before}
model, tokenizer = FastLanguageModel.from_pretrained(
    model_name = "{model}",
    max_seq_length = {max_length},
    dtype = {dtype},
    load_in_4bit = True,
)
model = FastLanguageModel.get_peft_model(
    model,
    r = 16,
    target_modules = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    lora_alpha = 16,
    lora_dropout = {dropout},
    use_gradient_checkpointing = {checkpointing},
    random_state = 3407,
)"""

DATA = """\
from datasets import load_dataset
dataset = load_dataset("json", data_files = "{data}", split = "train")"""

CLOCK = """\
from transformers import TrainerCallback

class Clock(TrainerCallback):
    def __init__(self):
        self.ends = []
    def on_train_begin(self, args, state, control, **kwargs):
        self.ends = [time.perf_counter()]
    def on_step_end(self, args, state, control, **kwargs):
        torch.cuda.synchronize()
        self.ends.append(time.perf_counter())

clock = Clock()"""

# The same, with the share of the last three steps in which the GPU has a kernel to run.
PROFILED_CLOCK = """\
from transformers import TrainerCallback
from torch.profiler import ProfilerActivity, profile

class Clock(TrainerCallback):
    def __init__(self):
        self.ends = []
        self.busy = None
    def on_train_begin(self, args, state, control, **kwargs):
        self.ends = [time.perf_counter()]
    def on_step_end(self, args, state, control, **kwargs):
        torch.cuda.synchronize()
        self.ends.append(time.perf_counter())
        if state.global_step == args.max_steps - 4:
            self.profiler = profile(activities = [ProfilerActivity.CUDA])
            self.profiler.start()
        elif state.global_step == args.max_steps - 1:
            self.profiler.stop()
            events = self.profiler.profiler.kineto_results.events()
            kernels = [event for event in events if "CUDA" in str(event.device_type())]
            spans = sorted((event.start_ns(), event.start_ns() + event.duration_ns()) for event in kernels)
            spans = [span for span in spans if span[1] - span[0] < 5e8]
            covered = busy = 0
            for start, end in spans:
                busy += max(end - max(start, covered), 0)
                covered = max(covered, end)
            self.busy = busy / (self.ends[-1] - self.ends[-4]) / 1e9

clock = Clock()"""

SFT = """\
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer(
    model = model,
    processing_class = tokenizer,
    train_dataset = dataset,
    callbacks = [clock],
    args = SFTConfig(
        dataset_text_field = "text",
        max_length = {max_length},{options}
        per_device_train_batch_size = {batch},
        gradient_accumulation_steps = {accumulation},
        warmup_steps = 2,
        max_steps = {steps},
        learning_rate = 2e-4,
        logging_steps = 1,
        optim = "adamw_8bit",
        seed = 3407,
        output_dir = "outputs",
        save_strategy = "no",
        report_to = "none",
    ),
)"""

DPO = """\
from unsloth import PatchDPOTrainer
PatchDPOTrainer()
from trl import DPOConfig, DPOTrainer
trainer = DPOTrainer(
    model = model,
    ref_model = None,
    processing_class = tokenizer,
    train_dataset = dataset,
    callbacks = [clock],
    args = DPOConfig(
        per_device_train_batch_size = {batch},
        gradient_accumulation_steps = {accumulation},
        warmup_steps = 2,
        max_steps = {steps},
        learning_rate = 5e-5,
        logging_steps = 1,
        optim = "adamw_8bit",
        seed = 3407,
        output_dir = "outputs",
        save_strategy = "no",
        report_to = "none",
        max_length = 256,
    ),
)"""

TRAIN = "trainer_stats = trainer.train()"

SAVE = """\
model.save_pretrained("lora_model")
result = {
    "losses": [row["loss"] for row in trainer.state.log_history if "loss" in row],
    "seconds": [end - start for start, end in zip(clock.ends, clock.ends[1:])],
    "peak_gb": torch.cuda.max_memory_allocated() / 2**30,
    "busy": getattr(clock, "busy", None),
}
with open("result.json", "w") as file:
    json.dump(result, file)"""

# cuDNN's attention makes a plan for each new length: 30 ms of Python each, three for a micro-batch.
NO_PLANS = "torch.backends.cuda.enable_cudnn_sdp(False)\n"
UNEVEN = dict(
    kind="sft",
    batch=2,
    accumulation=4,
    steps=32,
    gpus=(1, 2),
    uneven=True,
    model="wide",
    max_length=4096,
    data="uneven.jsonl",
    checkpointing="True",
)
CASES = {
    "batch 16": dict(kind="sft", batch=16, accumulation=4, steps=20, gpus=(1, 2)),
    "batch 32": dict(kind="sft", batch=32, accumulation=4, steps=16, gpus=(1, 2, 4), apart=(2, 4)),
    "batch 64 of full rows": dict(
        kind="sft", batch=64, accumulation=4, steps=12, gpus=(1, 2, 4), apart=(2, 4), data="full.jsonl"
    ),
    "batch 128 of full rows": dict(
        kind="sft", batch=128, accumulation=4, steps=10, gpus=(1, 2, 4), apart=(2, 4), data="full.jsonl"
    ),
    # Unsloth's checkpointing copies activations to the host, whose memory all GPUs share.
    "batch 64 kept on the GPU": dict(
        kind="sft",
        batch=64,
        accumulation=4,
        steps=12,
        gpus=(1, 2, 4),
        data="full.jsonl",
        checkpointing="True",
    ),
    "fp16": dict(kind="sft", batch=16, accumulation=4, steps=20, gpus=(1, 2), dtype="torch.float16"),
    "dpo": dict(kind="dpo", batch=2, accumulation=4, steps=8, gpus=(1, 2)),
    "full rows": dict(kind="sft", batch=32, accumulation=4, steps=12, gpus=(1, 2, 4), data="full.jsonl"),
    "batch 2": dict(kind="sft", batch=2, accumulation=4, steps=20, gpus=(1, 2)),
    "dropout": dict(kind="sft", batch=2, accumulation=4, steps=20, gpus=(1, 2), dropout=0.1),
    "uneven padded": dict(UNEVEN, options="\n        padding_free = False,"),
    "uneven padding-free": dict(UNEVEN, options="\n        padding_free = True,"),
    "uneven alpaca": dict(UNEVEN, data="alpaca.jsonl", options="\n        padding_free = True,", apart=(2,)),
    # A T4 computes about a twelfth as fast as an H200, and Python as fast there: layers of 3.4 billion parameters
    # make an H200's step wait for the GPU as a T4's does for an ordinary model.
    "uneven alpaca widest": dict(
        UNEVEN,
        steps=24,
        model="widest",
        data="alpaca.jsonl",
        before=NO_PLANS,
        options="\n        padding_free = True,",
        apart=(2,),
    ),
    "uneven long": dict(
        UNEVEN,
        steps=40,
        max_length=8192,
        data="long.jsonl",
        before=NO_PLANS,
        options="\n        padding_free = False,",
    ),
    # What a step costs once (optimizer, logging, the first kernel) is half as much of it as in "uneven long".
    "uneven deep": dict(
        UNEVEN,
        steps=32,
        model="deep",
        max_length=8192,
        data="long.jsonl",
        before=NO_PLANS,
        options="\n        padding_free = False,",
    ),
    # What spot checks cost: every step counts, the first too; rows "2" and "2 unchecked", or "shared".
    **{
        f"checks {steps}": dict(
            UNEVEN,
            steps=steps,
            every=True,
            data="alpaca.jsonl",
            options="\n        padding_free = True,",
        )
        for steps in (60, 300)
    },
    "uneven 8 x 4": dict(
        UNEVEN, batch=8, steps=20, before=NO_PLANS, options="\n        padding_free = False,"
    ),
}
