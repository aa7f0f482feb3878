"""Installs leave the training script; what the training process needs of their cells stays."""

from __future__ import annotations

import pytest

from nb2ddp.rules.installs import rule
from tests.support.helpers import apply, converted

GONE = {
    "pip": "!pip install unsloth",
    "pip, options first": "!pip -q install unsloth",
    "pip by magic": "%pip install -q unsloth",
    "conda by magic": "%conda install cudatoolkit",
    "uv": "!uv pip install unsloth",
    "python -m pip": "!python -m pip install unsloth",
    "apt": "!apt-get -qq install ffmpeg",
    "sudo": "!sudo apt install ffmpeg",
    "a variable in front": "!FORCE_CUDA=1 pip install flash-attn",
    "an installer from the web": "!curl -fsSL https://ollama.com/install.sh | sh",
    "uninstall": "!pip uninstall -y transformers",
    "continued lines": "!pip install \\\n    unsloth \\\n    trl",
    "a bash cell": "%%bash\npip install unsloth\npip install trl\n",
    "under capture": "%%capture\n!pip install unsloth",
    "os.system": 'import os\nos.system("pip install unsloth")',
    "a process": 'import subprocess\nsubprocess.run("pip install unsloth", shell=True, check=True)',
    "a process with a list": (
        'import subprocess, sys\nsubprocess.check_call([sys.executable, "-m", "pip", "install", "trl>=0.2"])'
    ),
    "one branch of two": (
        'import os\nif "COLAB_" not in "".join(os.environ.keys()):\n    !pip install unsloth\nelse:\n'
        "    # Colab\n    !pip install --no-deps xformers trl\n"
    ),
    "a version worked out": (
        'import re, torch\nv = re.match(r"[\\d]+", torch.__version__)\n'
        'x = "x==1" if v else "x"\n!pip install {x}'
    ),
    "only where it is missing": ("try:\n    import unsloth\nexcept ImportError:\n    !pip install unsloth\n"),
}


@pytest.mark.parametrize("source", GONE.values(), ids=GONE.keys())
def test_an_install_leaves_the_script(source: str) -> None:
    result = apply(rule, source)
    assert not result.code[1].strip()
    assert result.changes


@pytest.mark.parametrize("source", GONE.values(), ids=GONE.keys())
def test_an_install_is_in_the_run_once_step(source: str) -> None:
    trains = "from trl import SFTConfig, SFTTrainer\nt = SFTTrainer(m, args=SFTConfig('o'))\nt.train()"
    conversion = converted(source, trains)
    assert conversion.status == "converted"
    setup = conversion.files["setup_env.py"]
    compile(setup, "setup_env.py", "exec")
    assert "install" in setup.split("# ---- cell 1 ----")[1]
    assert "install" not in conversion.files["train_ddp.py"].split("# ---- cell 2 ----")[1]
