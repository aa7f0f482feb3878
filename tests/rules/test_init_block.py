"""The init block stands below what sets the environment and above what needs it."""

from __future__ import annotations

import os
import sys

import pytest

from nb2ddp.rules import rule_of
from nb2ddp.rules.init_block import MARKER
from tests.support.helpers import apply, converted

rule = rule_of("init_block")

TRAIN = (
    "from unsloth import FastLanguageModel\n"
    "from trl import SFTConfig, SFTTrainer\n"
    'model, tokenizer = FastLanguageModel.from_pretrained("m")\n'
    'trainer = SFTTrainer(model, args=SFTConfig("o"))\n'
    "trainer.train()\n"
)

NOTHING_TO_WAIT_FOR = {
    "a heavy import first": "import torch\nimport os\nos.environ['A'] = '1'",
    "no environment": "import os, json\nx = 1\nimport torch",
    "a shell line first": "!ls\n%env A=1\nimport torch",
    "nothing but environment": "import os\nos.environ['A'] = '1'",
}

# What ends the environment: it needs the block, or may.
NOT_LIGHT = {
    "a heavy import": "from transformers import Trainer",
    "a heavy import under another name": "import datasets.features as df",
    "a heavy import in a block": "if big:\n    import torch",
    "this rank's GPU": 'DEVICE = "cuda:0"',
    "a shell line": "!ls",
    "a folder made of the environment": 'os.makedirs(os.environ["A"])',
    "a file looked for": 'if not os.path.exists(os.environ["A"]):\n    os.environ["B"] = "1"',
    "a command of the environment": 'import subprocess\nsubprocess.run("ls", env=os.environ)',
    "a file written": 'open(os.environ["A"], "w").write("x")',
    "a value shown at the end of the cell": 'os.environ["A"]',
    "another call": "login()",
}


@pytest.mark.parametrize("source", NOTHING_TO_WAIT_FOR.values(), ids=NOTHING_TO_WAIT_FOR.keys())
def test_without_environment_first_the_block_is_the_scripts_first(source: str) -> None:
    assert MARKER not in apply(rule, source).code[1]


@pytest.mark.parametrize("other", NOT_LIGHT.values(), ids=NOT_LIGHT.keys())
def test_the_block_stands_above_what_may_need_it(other: str) -> None:
    environment = 'import os\nos.environ["A"] = "1"\n'
    result = apply(rule, environment, other, "import torch")
    assert result.code[1] == environment
    code = "\n".join(result.code[number] for number in (2, 3))
    imports, marker, _ = code.partition(MARKER)
    assert marker
    assert imports.strip() in ("", "import subprocess")


def test_a_future_import_is_moved_to_the_top() -> None:
    result = apply(rule, "# notes\nfrom __future__ import annotations\nimport os")
    assert result.code[1] == "# notes\nimport os"
    assert {need.value for need in result.needs} == {"from __future__ import annotations"}
    compile(converted("from __future__ import annotations", TRAIN).files["train_ddp.py"], "script", "exec")


def script(*cells: str) -> str:
    conversion = converted(*cells, TRAIN)
    assert conversion.status == "converted"
    return conversion.files["train_ddp.py"]


def test_the_environment_is_set_before_torch_is_imported() -> None:
    lines = script('import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "x"').splitlines()
    assert lines.index('os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "x"') < lines.index(
        "    import ddp_support as ddp"
    )
    assert lines.index("import os") < lines.index('os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "x"')


ABOVE_THE_BLOCK = {
    "a mask": 'import os\nos.environ["CUDA_VISIBLE_DEVICES"] = "0"',
    "a mask by magic": "%env CUDA_VISIBLE_DEVICES=0",
    "a default at the end of a cell": 'import os\nos.environ.setdefault("A", "1")',
    "a path whose import went with the installs": (
        'import sys\n!{sys.executable} -m pip install unsloth\nsys.path.insert(0, "src")'
    ),
    "a device by name": 'import os\nos.environ["A"] = "1"\nDEVICE = "cuda:0"',
    "a folder": 'import os\nos.environ["A"] = "d"\nos.makedirs(os.environ["A"])',
    "an install beside a download": 'import os\nif "A" in os.environ:\n    !pip install unsloth\n    !wget x',
    "a version that torch gives": (
        "import os, torch\nif torch.cuda.is_available():\n    !pip install flash-attn\n"
        'else:\n    os.environ["A"] = "1"'
    ),
}


@pytest.mark.parametrize("source", ABOVE_THE_BLOCK.values(), ids=ABOVE_THE_BLOCK.keys())
def test_nothing_above_the_block_needs_it(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(sys, "path", list(sys.path))
    above = script(source).split("try:\n    import ddp_support")[0]
    names: dict[str, object] = {"__name__": "above"}
    exec(above, names)
