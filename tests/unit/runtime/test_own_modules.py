"""Which modules are the notebook's own: those beside it and in its folders, none that is installed."""

from __future__ import annotations

from pathlib import Path

from tests.support.ranks import RankServer
from tests.unit.runtime.conftest import START

PROGRAM = """
import importlib, os, sys
def make(path, *beside):
    for name in (path, *beside):
        os.makedirs(os.path.dirname(name), exist_ok=True)
        open(name, "w").close()
make("src/own_nets/vit.py")
make("venv/lib/python3.11/site-packages/installed_package/core.py")
make("clone/cloned_package/core.py", "clone/setup.py")
make("libs/packed/core.py", "libs/packed-1.0.dist-info/METADATA")  # as `pip install --target libs` leaves it
make("unsloth_compiled_cache/compiled_trainer.py")
make("exp/readme")
make(".hidden/notes.py")
sys.path[:0] = ["src", "clone", "libs", "unsloth_compiled_cache", "venv/lib/python3.11/site-packages", os.getcwd()]
names = ["own_nets.vit", "clone.cloned_package.core", "cloned_package.core", "compiled_trainer"]
names += ["installed_package.core", "packed.core"]
for name in names:
    importlib.import_module(name)
os.chdir("exp")
note(own={name: ddp._is_own(name) for name in [*names, "__main__", "torch.ops", "os", "ddp_support"]})
"""


def test_packages_beside_the_script_are_the_notebooks_and_installed_ones_are_not(
    server: RankServer, tmp_path: Path
) -> None:
    ended = server.run(tmp_path, START + PROGRAM, 0)
    own = ended.notes[0]["own"]
    assert [name for name, is_own in own.items() if is_own] == ["own_nets.vit", "__main__"], ended.text
