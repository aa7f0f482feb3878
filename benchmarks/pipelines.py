"""Show on which GPU each rank's pipeline() of Transformers runs, before and after the ranks have joined.

    python benchmarks/pipelines.py          needs two GPUs, torch, transformers and accelerate

Each rank makes pipelines as notebooks do: of a name, of a model, of a model that is already on a device, with a
`device_map`, with a device. The first column is what Transformers does by itself. Exit code 1 if a rank's pipeline
does not run on its own GPU.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

SCRIPT = """
import torch, transformers
import ddp_support as ddp
rank, local_rank, world_size = ddp.init()
from transformers import BertConfig, BertModel, BertTokenizer, pipeline
folder = f"rank{rank}"
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
config = BertConfig(vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
BertModel(config).save_pretrained(folder)
open(f"{folder}/vocab.txt", "w").write("\\n".join(words))
BertTokenizer(f"{folder}/vocab.txt").save_pretrained(folder)
load = BertModel.from_pretrained
WAYS = {
    "a name": lambda: {"model": folder},
    "a name, device_map": lambda: {"model": folder, "device_map": {"": local_rank}},
    "a name, model_kwargs": lambda: {"model": folder, "model_kwargs": {"device_map": {"": local_rank}}},
    "a name, device='cuda'": lambda: {"model": folder, "device": "cuda"},
    "a model": lambda: {"model": load(folder)},
    "a model on the GPU": lambda: {"model": load(folder).cuda()},
    "a mapped model": lambda: {"model": load(folder, device_map={"": local_rank})},
}
wrong = 0
for joined in (False, True):
    if joined:
        ddp.init_process_group()
    for name, options in WAYS.items():
        found = []
        for make in (pipeline, ddp.own_gpu(pipeline)):
            made = make("feature-extraction", tokenizer=folder, **options())
            made("a b")
            found.append((str(made.device), str(made.model.device)))
        own = f"cuda:{local_rank}"
        right = found[1][1] == own and found[1][0] in (own, "cuda")
        wrong += not right
        place = f"rank {rank}  joined={joined!s:5}  {name:22}"
        line = f"{place} by itself {found[0][1]:7} own_gpu {found[1][1]:7} {'' if right else 'WRONG'}"
        for line in ddp.from_all_ranks(line):
            print(line, flush=True)
print(transformers.__version__, flush=True)
raise SystemExit(1 if wrong else 0)
"""


def main() -> int:
    sys.path.insert(0, str(Path(__file__).parent.parent))
    from nb2ddp.runtime import support_module

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "script.py").write_text(SCRIPT)
        Path(folder, "ddp_support.py").write_text(support_module())
        launch = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc_per_node=2",
            "script.py",
        ]
        return subprocess.run(
            launch, cwd=folder, env={**os.environ, "HF_HUB_OFFLINE": "1"}, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
