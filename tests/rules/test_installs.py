"""Installs leave the training script; what the training process needs of their cells stays."""

from __future__ import annotations

import pytest

from nb2ddp.rules.installs import rule
from tests.support.helpers import apply, check_settles, check_untouched, converted

NO_INSTALLS = {
    "no shell": "x = 1",
    "a shell line": "!nvidia-smi",
    "a list of packages": "!pip list",
    "a search for one": "!pip freeze | grep torch",
    "a download": "!wget -q https://example.com/audio.mp3",
    "a text": 'print("pip install unsloth")',
    "a file written": "%%writefile requirements.txt\nunsloth\n",
    "an install into another folder": (
        'import subprocess\nsubprocess.run(["pip", "install", "-e", "."], cwd="repo")'
    ),
    "a command run by the notebook": 'import os\nos.system("ls")',
}

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

STATE_STAYS = {
    "environment": (
        'import os\nos.environ["A"] = "1"\n!pip install unsloth\nos.environ["B"] = "2"',
        'import os\nos.environ["A"] = "1"\nos.environ["B"] = "2"\n',
    ),
    "environment under an if, indented by two": (
        'import os\nif colab:\n  !pip install unsloth\n  os.environ["A"] = "1"  # needed\n',
        'if colab:\n  os.environ["A"] = "1"  # needed\n',  # the init block imports os
    ),
    "comments": (
        "# Install\n!pip install unsloth\n# then set it up\nx = 1\n",
        "# Install\n# then set it up\nx = 1\n",
    ),
    "a name that is used later": (
        'version = "2.4"\n!pip install torch=={version}\nprint(version)\n',
        'version = "2.4"\nprint(version)\n',
    ),
    "a function that others call": (
        "def setup():\n    !pip install unsloth\n    return 1\nx = setup()\n",
        "def setup():\n    return 1\nx = setup()\n",
    ),
    "an if that is left empty": (
        "if colab:\n    !pip install unsloth\nelse:\n    x = 1\nprint(x)\n",
        "if colab:\n    pass\nelse:\n    x = 1\nprint(x)\n",
    ),
    "the other half of a line": (
        'a = 1; get_ipython().system("pip install unsloth")\nprint(a)',
        "a = 1\nprint(a)",
    ),
}

VALUES = {
    "the lines that pip prints": (
        "out = !pip install unsloth\nprint(out)\n",
        "out = []\nprint(out)\n",
    ),
    "the process that ran pip": (
        'import subprocess as sp\nr = sp.run(["pip", "install", "x"])\nprint(r.returncode)\n',
        "import subprocess as sp\nr = sp.CompletedProcess([], 0)\nprint(r.returncode)\n",
    ),
    "its exit code": (
        'import os\nif os.system("pip install unsloth") == 0:\n    x = 1\nprint(x)\n',
        "if 0 == 0:\n    x = 1\nprint(x)\n",
    ),
}


@pytest.mark.parametrize("source", NO_INSTALLS.values(), ids=NO_INSTALLS.keys())
def test_what_installs_nothing_is_left_alone(source: str) -> None:
    check_untouched(rule, source)


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


@pytest.mark.parametrize(("before", "after"), STATE_STAYS.values(), ids=STATE_STAYS.keys())
def test_the_state_around_an_install_stays(before: str, after: str) -> None:
    check_settles(rule, before, after)


@pytest.mark.parametrize(("before", "after"), VALUES.values(), ids=VALUES.keys())
def test_a_value_that_an_install_gives_is_that_of_success(before: str, after: str) -> None:
    check_settles(rule, before, after)


def test_a_name_that_a_later_cell_reads_stays() -> None:
    result = apply(rule, 'version = "2.4"\n!pip install torch=={version}', "print(version)")
    assert result.code == {1: 'version = "2.4"\n', 2: "print(version)"}
