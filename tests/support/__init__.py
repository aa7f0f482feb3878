"""What several tests share: folders, notebooks, servers, kernels, runs."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "sample_notebooks"
CORPUS = ROOT.parent / "shared" / "corpus"
