"""The whole way from a notebook to its script."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path
from textwrap import dedent

import nbformat
import pytest

from nb2ddp import convert
from nb2ddp.conversion.pipeline import Conversion, convert_notebook
from nb2ddp.conversion.report import as_json
from nb2ddp.ddp_folder import SCRIPT, SETUP, SUPPORT
from nb2ddp.runtime import support_module
from nb2ddp.source.notebook import notebook_of
from tests.support import ROOT
from tests.support.helpers import converted, notebook

SAMPLES = [ROOT / "sample_notebooks" / f"{name}.ipynb" for name in ("alpaca_sft", "chat_sft", "peft_loop")]
TRAIN = """
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer(model=m, args=SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4))
trainer.train()
"""


def script_of(*cells: str, **options: object) -> str:
    conversion = converted(*cells, **options)
    assert conversion.status == "converted", conversion.declined
    compile(conversion.files[SCRIPT], SCRIPT, "exec")
    return conversion.files[SCRIPT]


def cells_of(script: str) -> str:
    """The script without its head."""
    return script[script.index("# ---- cell") :]


def imported_by(code: str) -> list[str]:
    """Top-level imports of a script, in order."""
    names: list[str] = []
    for node in ast.parse(code).body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(str(node.module))
    return names


@pytest.mark.parametrize(
    ("cell", "told"),
    [
        ("%load_ext autoreload\n%autoreload 2\n", "`%load_ext` and `%autoreload` are for the notebook alone"),
        ("%matplotlib inline", "`%matplotlib` is for the notebook alone"),
        ("from google.colab import drive", "a script needs nothing of this cell"),
        ("!pip install trl", "this cell's installs run once, in setup_env.py"),
    ],
)
def test_a_cell_that_is_left_out_says_why(cell: str, told: str) -> None:
    assert f"# nb2ddp: {told}\n" in script_of(cell, TRAIN)


def test_nothing_of_the_notebook_is_executed(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    conversion = converted(
        f"!touch {seen}\nopen({str(seen)!r}, 'w')\nraise SystemExit('executed')",
        f"%%bash\ntouch {seen}\n",
        f"%%writefile {seen}\ntext\n",
        f"import os\nos.system('pip install a; touch {seen}')\n!pip install b > {seen}",
        f"%cd {tmp_path}",
        "%env NB2DDP_SEEN=1",
        TRAIN,
    )
    assert conversion.status == "converted", conversion.declined
    assert not seen.exists()
    assert Path.cwd() != tmp_path


def test_a_second_conversion_gives_the_same_bytes() -> None:
    code = (
        "import sys, json, nb2ddp\n"
        "from nb2ddp.conversion.report import as_json\n"
        "for path in sys.argv[1:]:\n"
        "    for batch in ('preserve', 'scale'):\n"
        "        done = nb2ddp.convert(path, batch=batch)\n"
        "        print(json.dumps([dict(done.files), as_json(done)]))"
    )
    results = []
    for seed in ("1", "2"):  # other hashes, another order of sets
        command = [sys.executable, "-c", code, *map(str, SAMPLES)]
        result = subprocess.run(command, env={"PYTHONHASHSEED": seed}, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        results.append(result.stdout.splitlines())
    assert len(results[0]) == 2 * len(SAMPLES)
    assert results[0] == results[1]


ODD = '''
# a comment,   with   spaces
x = {  'a':1,
       "b" : 2 }   # behind
if x :
  y=[1,2,
3]
else: y = ( 1,)
text = """
   %kept  !kept
# kept
"""
def f( a,b = 2 ):
	return a;
'''


def test_code_that_is_not_changed_keeps_every_byte() -> None:
    assert ODD.strip("\n") in script_of("import os\nz = 0", ODD, TRAIN)


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_keep_their_comments(path: Path) -> None:
    script = convert(path).files[SCRIPT]
    for cell in nbformat.read(path, as_version=4).cells:
        for line in cell.source.splitlines():
            stripped = line.strip()
            if cell.cell_type == "code" and stripped.startswith("#"):
                assert any(own.strip() == stripped for own in script.splitlines()), line


def test_markdown_becomes_comments_before_its_cell() -> None:
    script = script_of("x = 1", "md:# Title\n\nsome *text*  \n```\ncode\n```", TRAIN, "md:the end")
    title = script.index("# # Title\n#\n# some *text*\n# ```\n# code\n# ```\n")
    assert script.index("x = 1") < title < script.index("from trl import")
    assert script.rstrip().endswith("# the end")


def test_cells_come_in_order_with_their_numbers() -> None:
    script = script_of("x = 1", "", "md:text", "y = 2", TRAIN)
    rulers = [line.split()[3] for line in script.splitlines() if line.startswith("# ---- cell ")]
    assert rulers == ["1", "3", "4"]
    assert script.index("x = 1") < script.index("y = 2") < script.index("trainer.train()")


@pytest.mark.parametrize(
    "cells",
    [
        ["import torch\nx = 1"],
        ["import os\nos.environ['A'] = '1'", "from unsloth import FastLanguageModel"],
        ["import json, transformers"],
        ["try:\n    import unsloth\nexcept ImportError:\n    pass"],
        ["def later():\n    import torch\n    return torch", "x = later()"],
        ["if True:\n    from unsloth import FastModel"],
        ["x = 1"],
    ],
    ids=lambda cells: cells[-1].splitlines()[0],
)
def test_the_device_is_chosen_before_the_first_heavy_import(cells: list[str]) -> None:
    script = script_of(*cells, TRAIN)
    lines = script.splitlines()
    chosen = next(i for i, line in enumerate(lines) if "import ddp_support as ddp" in line)
    heavy = ("unsloth", "transformers", "trl")
    first = next(
        i for i, line in enumerate(lines) if "import" in line and any(name in line for name in heavy)
    )
    ranks = next(
        i for i, line in enumerate(lines) if line.startswith("rank, local_rank, world_size = ddp.init(")
    )
    assert chosen < ranks < first


def test_environment_lines_come_before_torch() -> None:
    script = script_of('import os\nos.environ["PYTORCH_CUDA_ALLOC_CONF"] = "a:b"\nimport torch', TRAIN)
    assert script.index("PYTORCH_CUDA_ALLOC_CONF") < script.index("import torch")


def test_no_ipython_is_left() -> None:
    conversion = converted(
        "%matplotlib inline\n!nvidia-smi\nfiles = !ls\n%env A=1\n!pip install a\nx = 1\n?x",
        "%%capture\n!pip install b",
        "%%time\ny = 2",
        TRAIN,
    )
    assert conversion.status == "converted", conversion.declined
    assert not any("get_ipython" in text for text in conversion.files.values())


# ---- the report ---------------------------------------------------------------------------------


def places(conversion: Conversion) -> list[tuple[str, str, str]]:
    """Rule, the notebook's line and the script's line of every change."""
    assert conversion.source is not None
    sources = {
        cell.number: cell.source.split("\n") for cell in conversion.source.cells if cell.kind == "code"
    }
    script = conversion.files[SCRIPT].split("\n")
    return [
        (change["rule"], sources[change["cell"]][change["line"] - 1], script[change["script_line"] - 1])
        for change in as_json(conversion)["changes"]
        if change["cell"] is not None and change["script_line"] is not None
    ]


def test_changes_point_at_their_lines() -> None:
    conversion = converted(
        "import torch",
        "md:# Title",
        """
        # set up

        !pip install \\
            a b
        %env A=1
        model = load()

        """,
        """
        %%capture
        x = 1
        !ls
        """,
        TRAIN,
        "trainer.save_model('out')",
    )
    assert conversion.status == "converted", conversion.declined
    found = places(conversion)
    assert ("magics", "%env A=1", 'os.environ["A"] = "1"') in found
    assert ("shell-lines", "!ls", 'ddp.shell("ls")') in found
    assert any(rule == "wrap" and before == "trainer.train()" for rule, before, _ in found)
    finish = [before for rule, before, _ in found if rule == "finish"]
    assert finish == ["trainer.train()"]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_every_change_of_a_sample_has_a_line_in_both(path: Path) -> None:
    conversion = convert(path)
    found = places(conversion)
    assert found
    for change in as_json(conversion)["changes"]:
        assert change["script_line"] is None or change["cell"] is not None
        assert change["why"]
    for rule, before, _ in found:
        assert before.strip(), rule


def test_files_that_a_conversion_makes() -> None:
    conversion = converted("!pip install a", TRAIN)
    (kernel,) = set(conversion.files) - {SCRIPT, SUPPORT, SETUP, "kaggle/kernel-metadata.json"}
    assert kernel == f"kaggle/{json.loads(conversion.files['kaggle/kernel-metadata.json'])['code_file']}"


def test_the_install_step_installs_into_the_environment_that_runs_it(tmp_path: Path) -> None:
    """Though another pip stands first on PATH, as where an environment was not activated."""
    venv.create(tmp_path / "venv", symlinks=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "pip.py").write_text("")
    for folder, says in ((tmp_path / "venv/bin", "its own"), (tmp_path / "other", "another")):
        folder.mkdir(exist_ok=True)
        (folder / "pip").write_text(f"#!/bin/sh\necho {says}\n")
        (folder / "pip").chmod(0o755)
    (tmp_path / SETUP).write_text(converted("!pip install a", TRAIN).files[SETUP])
    done = subprocess.run(
        [tmp_path / "venv/bin/python", tmp_path / SETUP],
        env={**os.environ, "PATH": f"{tmp_path / 'other'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "$ pip install a\nits own\n"


# ---- declined -----------------------------------------------------------------------------------


def test_a_kernel_of_another_language_is_declined() -> None:
    node = notebook(TRAIN)
    node.metadata["kernelspec"] = {"name": "julia-1.10", "language": "julia", "display_name": "Julia"}
    conversion = convert_notebook(notebook_of(Path("a.ipynb"), node))
    assert conversion.status == "declined"
    assert "julia" in conversion.declined[0].why
    assert not conversion.files


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("x = 1\ny = = 2\n", 2),
        ("\n\nif x:\nz = 1\n", 4),
        ("!pip install \\\n  a\nx = (1\n", 3),
        ("%%capture\nx = 1\ny = = 2\n", 3),
        ("print 'a'\n", 1),
    ],
)
def test_a_syntax_error_is_declined_with_its_place(cell: str, line: int) -> None:
    conversion = converted("x = 1", "md:text", cell, TRAIN)
    assert conversion.status == "declined"
    place = conversion.declined[0].place
    assert place is not None
    assert place.cell == 2
    assert place.line in (line, line + 1)  # where the parser notices it
    assert not conversion.files


def test_every_broken_cell_is_told() -> None:
    conversion = converted("x = (", "y = 1", "def f(:", TRAIN)
    assert [c.place.cell for c in conversion.declined if c.place] == [1, 3]


# ---- names --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["rank", "local_rank", "world_size", "ddp"])
def test_a_name_of_ours_that_the_notebook_uses_is_changed(name: str) -> None:
    script = script_of(f"{name} = 16\nprint({name})\n!ls", TRAIN)
    assert f"{name} = 16\nprint({name})\n" in cells_of(script)
    assert f"ddp_{name}" in script[: script.index("# ---- cell")]
    assert not re.search(rf"^(?:.*, )?{name}\b.* = ", script[: script.index("# ---- cell")], re.MULTILINE)


@pytest.mark.parametrize(
    "binding", ["def shell(c):\n    return c", "from mine import shell", "class shell: pass"]
)
def test_a_function_of_the_notebooks_is_not_replaced(binding: str) -> None:
    script = script_of(f"{binding}\n!ls\nx = shell('mine')", TRAIN)
    assert 'ddp.shell("ls")' in script
    assert "\nx = shell('mine')\n" in script


@pytest.mark.parametrize("other", ["from torch.nn import Linear", "import torch.nn.functional as F", ""])
def test_what_the_install_step_takes_along_is_imported_for_the_script(other: str) -> None:
    install = "import torch\nversion = torch.__version__\n!pip install scatter=={version}"
    script = script_of(install, f"{other}\nclass Net(torch.nn.Module):\n    pass", TRAIN)
    assert "torch" in imported_by(script)


def test_an_import_of_a_part_needs_none_of_the_whole() -> None:
    assert "torch" not in imported_by(script_of("from torch.utils.data import DataLoader", TRAIN))


def test_the_same_import_needs_no_other_name() -> None:
    script = script_of("import os, sys\nimport torch\nimport torch.distributed as dist", TRAIN)
    assert not [name for name in ("os", "sys", "torch", "dist") if f"ddp_{name}" in script]


def test_a_future_import_stays_first() -> None:
    script = script_of("from __future__ import annotations\nimport torch", TRAIN)
    assert imported_by(script)[0] == "__future__"


def test_the_script_runs_plainly_without_torchrun(tmp_path: Path) -> None:
    """Under plain Python all that is ours is inert; a loop without a Trainer runs on the CPU."""
    source = dedent(
        """
        import torch
        torch.manual_seed(0)
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(2, 1)

            def forward(self, x):
                return self.layer(x)

        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(torch.randn(8, 2), batch_size=4)
        losses = []
        for batch in loader:
            output = model(batch)
            loss = torch.nn.functional.mse_loss(output, torch.zeros_like(output))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        print("losses", losses)
        """
    )
    (tmp_path / "plain.py").write_text(source)
    (tmp_path / "script.py").write_text(script_of(source))
    (tmp_path / SUPPORT).write_text(support_module())
    code = "import runpy\nfor name in ('plain.py', 'script.py'): runpy.run_path(name, run_name='__main__')"
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    losses = [line for line in result.stdout.splitlines() if line.startswith("losses [")]
    assert len(losses) == 2
    assert losses[0] == losses[1]


def test_a_value_that_is_shown_is_what_other_rules_made_of_it() -> None:
    train = "from trl import SFTConfig, SFTTrainer\nt = SFTTrainer(m, SFTConfig('o'))\nt.train()"
    result = converted("import torch.distributed as dist\nx = 1\nmax(dist.get_rank(), x)", train)
    assert result.script is not None
    assert "show(max(0, x))" in result.script.text


def test_a_notebook_that_cannot_be_converted_has_no_notes_of_a_script() -> None:
    inference = "from transformers import AutoModelForCausalLM as M\nmodel = M.from_pretrained('m-70B')"
    result = converted(inference)
    assert result.status == "declined"
    assert result.notes == ()
    asking = f"{inference}\ninput()\nfrom transformers import Trainer\nTrainer(model).train()"
    assert converted(asking).status == "declined"
    assert any("70 billion" in note.why for note in converted(asking).notes)  # for when input() is gone


def test_what_kaggle_paths_do_not_tell_is_noted_once() -> None:
    paths = 'open("/kaggle/input/alpaca/a.csv"); open("/kaggle/input/words/w.txt")'
    (note,) = (note.why for note in converted(paths, TRAIN).notes if note.rule == "kaggle")
    assert note.startswith(
        "the script reads /kaggle/input/alpaca, /kaggle/input/words, which does not say what"
    )
    assert "name it when you push, with --dataset OWNER/NAME" in note


def test_what_kaggle_paths_tell_is_attached() -> None:
    model = "google/gemma/transformers/1.1-2b-it/2"
    paths = f'load("/kaggle/input/models/{model}"); open("/kaggle/input/datasets/ada/words/w.txt")'
    metadata = json.loads(converted(paths, TRAIN).files["kaggle/kernel-metadata.json"])
    assert (metadata["model_sources"], metadata["dataset_sources"]) == ([model], ["ada/words"])
