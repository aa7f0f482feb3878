"""What several tests share: folders, notebooks, servers, kernels, runs."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_notebooks"
CORPUS = ROOT.parent / "shared" / "corpus"

# Unsloth trains in 16 bits where a CPU computes in them (AVX512-BF16, AMX), and the tests compare runs in 32 bits.
os.environ.setdefault("UNSLOTH_CPU_BF16", "0")
