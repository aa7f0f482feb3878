"""A notebook with tokens in all its parts: no command prints or stores one, outside of the script itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from nb2ddp.cli import main
from tests.support.helpers import notebook
from tests.support.tokens import TOKENS

KINDS = (
    "huggingface-token",
    "openai-key",
    "github-token",
    "aws-access-key",
    "slack-token",
    "password-in-url",
)
HF, OPENAI, GITHUB, AWS, SLACK, PASSWORD = (TOKENS[kind][0] for kind in KINDS)
CELLS = (
    f"!pip install trl\n!tool --token {GITHUB} --x\n%env MY_API_KEY={AWS}",
    f"import os\nfrom trl import SFTConfig, SFTTrainer\nos.environ['HF_TOKEN'] = '{HF}'\n# {AWS}\n"
    f"slack = '{SLACK[:20]}' + '{SLACK[20:]}'\nurl = 'https://ada:{PASSWORD}@db.lab.org/x'",
    f"args = SFTConfig('out', hub_token='{HF}', run_name='{OPENAI}', per_device_train_batch_size=4)\n"
    f"trainer = SFTTrainer('m-{GITHUB}', args=args, train_dataset=[])\ntrainer.train()\n"
    f"trainer.save_model('{OPENAI}')\nopen('{GITHUB}', 'w').write('x')",
    f"!curl -H 'Authorization: Bearer {OPENAI}' https://x.org -o {HF}\nmodel.generate('{AWS}')",
)
DECLINED = (
    f"for row in rows:\n  model('{HF}')\n  loss.backward()\n  optimizer['{OPENAI}'].step()",
    f"%%bash -s {GITHUB}\necho $1",
    f"%cd -{AWS}",
)
# declined after changes were found, which -v shows with their lines
CHANGED = (
    f"%env HF_TOKEN={HF}\nfrom datasets import load_dataset\nfrom trl import SFTTrainer",
    f"rows = load_dataset('r', token='{OPENAI}')\ntrainer = SFTTrainer('m', train_dataset=rows)\ntrainer.train()",
)
BROKEN = (f"x = = '{HF}'", f"print('{OPENAI}'")


@pytest.mark.parametrize("name", ["good", "declined", "changed", "broken"])
def test_no_command_shows_a_token(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("KAGGLE_CONFIG_DIR", str(tmp_path / "home"))
    cells = {"good": CELLS, "declined": DECLINED, "changed": CHANGED, "broken": BROKEN}[name]
    Path("nb.ipynb").write_text(json.dumps(notebook(*cells)))
    shown = ""
    for arguments in (
        ["convert", "nb.ipynb", "-v", "--html", "page.html"],
        ["convert", "nb.ipynb", "--check", "--json"],
        ["convert", "nb.ipynb", "--check", "--output-format", "github"],
        ["convert", "nb.ipynb", "--check", "--diff"],
        ["emit", "--target", "slurm", "nb_ddp", "-o", "cluster"],
        ["push", "nb_ddp", "--dry-run"],
        ["status", "nb_ddp"],
        ["doctor", "nb_ddp", "--nproc", "x"],
    ):
        result = CliRunner().invoke(main, arguments)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        shown += result.output
    assert name != "good" or "(hf_…)" in shown
    stored = [*tmp_path.glob("*.html"), *tmp_path.glob("*/report.json"), *tmp_path.glob("cluster/*.sbatch")]
    shown += "".join(path.read_text() for path in stored)
    for kind, value in zip(KINDS, (HF, OPENAI, GITHUB, AWS, SLACK, PASSWORD), strict=True):
        assert value not in shown, kind
        assert value[8:] not in shown, kind
    assert name != "good" or len(stored) == 4
