"""`convert --single-file`: one script that needs no file beside it, wherever it travels."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from nb2ddp.ddp_folder import SCRIPT, SUPPORT
from nb2ddp.runtime import support_module, used_names
from nb2ddp.targets import TARGETS
from nb2ddp.targets.job import Job, has_trainer
from nb2ddp.targets.kaggle import input_sources, tokens_read
from tests.support.helpers import converted
from tests.support.ranks import Ended, RankServer

# A notebook with a name of the script's own, a `__future__` line, and a loop whose loss any rank can tell.
LOOP = (
    "from __future__ import annotations\nmake_ddp_support = ddp = 3",
    """
    import torch
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.arange(48.0).reshape(12, 4) / 48
    """,
    """
    def later(value: Unknown) -> Unknown:
        return value

    losses = []
    for epoch in range(3):
        for rows in x.split(4):
            loss = ((model(rows) - 1) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
    note(losses=losses, ddp=ddp, make=make_ddp_support, weight=model.weight)
    """,
)


def single_file(*cells: str, **options: Any) -> dict[str, str]:
    conversion = converted(*cells, single_file=True, **options)
    assert conversion.status == "converted", conversion.declined
    return dict(conversion.files)


def run(server: RankServer, folder: Path, script: str, ranks: int) -> Ended:
    """Run a script where no ddp_support can be imported."""
    return server.run(folder, script, ranks, runtime=str(folder / "nowhere"))


def test_it_trains_alike_in_one_process_and_in_several(server: RankServer, tmp_path: Path) -> None:
    script = single_file(*LOOP)[SCRIPT]
    one = run(server, tmp_path / "one", script, 0)
    assert one.codes == [0], one.text
    assert (one.notes[0]["ddp"], one.notes[0]["make"]) == (3, 3)
    several = run(server, tmp_path / "two", script, 2)
    assert several.codes == [0, 0], several.text
    assert "2 replicas equal, bit for bit" in several.ranks[0].out
    assert several.notes[0]["losses"] == pytest.approx(one.notes[0]["losses"], abs=1e-6)
    assert several.notes[0]["weight"][0] == pytest.approx(one.notes[0]["weight"][0], abs=1e-6)
    assert not list(tmp_path.rglob(SUPPORT))


FAILING = """
note(pickled=__import__("pickle").loads(__import__("pickle").dumps(MODULE.from_main_process)).__name__)
def make():
    raise ValueError("of the notebook")
MODULE.from_main_process(make)
"""


def test_a_traceback_shows_the_lines_of_the_module(server: RankServer, tmp_path: Path) -> None:
    script = single_file(*LOOP)[SCRIPT]
    (name,) = re.findall(r"^(\w+) = \w+\(r'''$", script, re.MULTILINE)
    ended = run(server, tmp_path, script + FAILING.replace("MODULE", name), 0)
    assert ended.codes == [1]
    assert ended.notes[0]["pickled"] == "from_main_process"
    frame = r'script\.py", line (\d+), in from_main_process\n\s+return make\(\)\n'
    found = re.search(frame, ended.text)
    assert found is not None, ended.text
    assert script.splitlines()[int(found[1]) - 1].strip() == "return make()"


def test_the_text_is_the_modules(server: RankServer) -> None:
    script = single_file(*LOOP)[SCRIPT]
    texts = [
        node.value
        for node in ast.walk(ast.parse(script))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    (text,) = [text for text in texts if "# ---- run_state" in text]
    (alias,) = re.findall(r"= (\w+)\.init\(\)", script)
    assert text == f"\n{support_module(used_names('#' + script.partition('# ---- cell')[2], alias))}"


def test_it_travels_alone() -> None:
    files = single_file(*LOOP, "!pip install einops")
    assert set(files) == {SCRIPT, "setup_env.py", "kaggle/kernel-metadata.json", "kaggle/test-ddp.py"}
    script = files[SCRIPT]
    bundle: dict[str, ast.expr] = {}
    for node in ast.parse(files["kaggle/test-ddp.py"]).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            bundle[node.targets[0].id] = node.value
    assert "DDP_SUPPORT" not in bundle
    assert eval(compile(ast.Expression(bundle["TRAIN_DDP"]), "bundle", "eval")) == script
    for name, target in TARGETS.items():
        made = target().files(Job("test.ipynb", script, None, None))
        assert SUPPORT not in made
        if name == "kubeflow":
            trainer = yaml.safe_load(made["trainjob.yaml"])["spec"]["trainer"]
            assert "".join(part.replace("$$", "$") for part in trainer["args"]) == script
        else:
            assert made[SCRIPT] == script


def test_the_modules_text_is_not_taken_for_the_notebooks() -> None:
    """What is looked for in scripts must not be found in the module, which is part of some."""
    text = support_module()
    assert not has_trainer(text)
    assert not tokens_read(text)
    assert not any(vars(input_sources(text)).values())
