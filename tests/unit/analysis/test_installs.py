"""The run-once step: what it takes out of the notebook, what it leaves, and that it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from nb2ddp.analysis import installs
from nb2ddp.ddp_folder import SCRIPT, SETUP
from nb2ddp.source import cst_nodes
from tests.support.helpers import converted, facts_of

TRAIN = """
from trl import SFTConfig, SFTTrainer
trainer = SFTTrainer(model=m, args=SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4))
trainer.train()
"""


def parts(*cells: str) -> dict[str, list[str]]:
    plan = installs.plan(facts_of(*map(dedent, cells)))
    return {
        "slice": [cst_nodes.code_of(s).strip() for s in plan.slice],
        "dropped": [cst_nodes.code_of(s).strip() for s in plan.dropped],
        "leftovers": [cst_nodes.code_of(s).strip() for s in plan.leftovers],
        "silenced": [shell.text for shell in plan.silenced],
    }


def system(command: str) -> str:
    return f"get_ipython().system({command!r})"


def test_nothing_installed() -> None:
    assert not any(parts("import os\n!ls\n").values())


def test_a_lone_install_and_what_is_beside_it() -> None:
    found = parts("import os\n!pip install a\nx = 1\n")
    assert found["slice"] == [system("pip install a")]
    assert found["dropped"] == [system("pip install a")]
    assert not found["leftovers"] + found["silenced"]


def test_versions_that_are_worked_out_go_along() -> None:
    found = parts(
        """
        import torch
        version = torch.__version__.split("+")[0]
        other = 1
        extra = f"xformers=={version}"
        !pip install {extra} unsloth
        """
    )
    assert found["slice"] == [
        "import torch",
        'version = torch.__version__.split("+")[0]',
        'extra = f"xformers=={version}"',
        system("pip install {extra} unsloth"),
    ]
    assert set(found["slice"]) == {*found["leftovers"], *found["dropped"]}


def test_a_name_that_is_read_later_stays_in_the_script_too() -> None:
    found = parts("version = f()\n!pip install {version}\n", "print(version)")
    assert found["slice"] == ["version = f()", system("pip install {version}")]
    assert "version = f()" not in found["leftovers"]


def test_a_list_of_packages_that_grows() -> None:
    found = parts(
        'packages = ["a"]\npackages.append("b")\npackages += ["c"]\n!pip install {" ".join(packages)}'
    )
    assert found["slice"][:3] == ['packages = ["a"]', 'packages.append("b")', 'packages += ["c"]']


def test_a_dict_of_versions_that_grows() -> None:
    found = parts('v = {}\nv["a"] = 1\nother["b"] = 2\n!pip install a=={v["a"]}')
    assert found["slice"][:-1] == ["v = {}", 'v["a"] = 1']


def test_a_branch_of_which_nothing_is_left() -> None:
    found = parts(
        """
        import os
        if "COLAB_" in os.environ:
            !pip install a
        else:
            !pip install b
        """
    )
    assert len(found["leftovers"]) == 2
    assert not found["dropped"]


def test_a_branch_that_sets_state_keeps_it() -> None:
    found = parts(
        """
        import os
        if "COLAB_" in os.environ:
            !pip install a
        else:
            os.environ["A"] = "1"
            !pip install b
        """
    )
    assert found["dropped"] == [system("pip install a"), system("pip install b")]
    assert len(found["slice"]) == 2


def test_the_colab_question() -> None:
    cell = """
    try:
        import google.colab
        on_colab = True
    except ImportError:
        on_colab = False
    if on_colab:
        !pip install a
    """
    asked_once = parts(cell)
    assert len(asked_once["slice"]) == len(asked_once["leftovers"]) == 2
    asked_again = parts(cell, "print(on_colab)")
    assert [s.splitlines()[0] for s in asked_again["leftovers"]] == ["if on_colab:"]


def test_an_install_whose_value_is_used_is_silenced() -> None:
    assert parts("out = !pip install a\nprint(out)")["silenced"] == ["pip install a"]


def test_an_install_in_a_loop() -> None:
    found = parts('for p in ["a", "b"]:\n    !pip install {p}\n')
    assert found["dropped"] == [system("pip install {p}")]
    assert found["slice"][0].startswith("for p in")


def test_a_function_that_installs_is_called_there() -> None:
    found = parts('def get(p):\n    !pip install {p}\nget("a")\nget("b")\nx = 1\n')
    assert found["slice"][1:] == ['get("a")', 'get("b")']


def test_a_function_that_does_more_is_not_called_there() -> None:
    found = parts("def all_of_it():\n    !pip install a\n    train()\nall_of_it()\n")
    assert "all_of_it()" not in found["slice"]


@pytest.mark.parametrize(
    "install",
    [
        "pip install -e .",
        "pip install .",
        "pip install -r requirements.txt",
        "pip install a/b.whl",
        "pip install a/part",
    ],
)
def test_an_install_from_files_brings_them_along(install: str) -> None:
    found = parts(f"!git clone https://example.com/a\n%cd a\n!{install}\n!ls\n")
    assert found["slice"] == [
        system("git clone https://example.com/a"),
        "get_ipython().run_line_magic('cd', 'a')",
        system(install),
    ]
    assert not any("git clone" in code for code in found["leftovers"] + found["dropped"])


@pytest.mark.parametrize(
    "install",
    ["pip install git+https://example.com/a.git", "pip install https://example.com/a.whl", "pip install a"],
)
def test_an_install_from_the_net_needs_no_folder(install: str) -> None:
    assert parts(f"!git clone https://example.com/a\n%cd a\n!{install}\n")["slice"] == [system(install)]


# ---- the whole way ------------------------------------------------------------------------------


def test_state_lines_stay_in_the_script() -> None:
    conversion = converted(
        'import os\nos.environ["HF_HUB_OFFLINE"] = "0"\n!pip install a\nimport sys\nsys.path.append("a")',
        TRAIN,
    )
    script, setup = conversion.files[SCRIPT], conversion.files[SETUP]
    assert 'os.environ["HF_HUB_OFFLINE"] = "0"' in script
    assert 'sys.path.append("a")' in script
    assert 'sys.path.append("a")' not in setup
    assert "pip install a" not in script
    assert 'shell("pip install a")' in setup


def test_an_install_finds_the_variables_that_the_notebook_has_set_before(tmp_path: Path) -> None:
    first = """
    import os
    import platform
    os.environ["ARCH"] = "8.0"
    %env KIND=fast
    os.environ.setdefault("VERSION", platform.__name__)
    os.environ["TOKEN"] = platform.node()
    """
    second = "!pip install ${ARCH} ${KIND} ${VERSION} ${TOKEN}\n%env KIND=slow"
    assert run_setup(tmp_path, first, second) == ["pip install 8.0 fast platform"]


def test_an_install_finds_the_folder_that_its_block_writes_to(tmp_path: Path) -> None:
    cell = """
    from pathlib import Path
    out, other = Path("out"), Path("other")
    out.mkdir(exist_ok=True)
    other.mkdir()
    with open(out / "log", "w") as log:
        !pip install a
    """
    assert run_setup(tmp_path, cell) == ["pip install a"]
    assert not (tmp_path / "other").exists()  # the script makes it, and may fail where it is


@pytest.mark.parametrize(
    "making",
    [
        "for d in [A, B]: os.makedirs(d, exist_ok=True)",
        "[os.makedirs(d, exist_ok=True) for d in (A, B)]",
        "for d in (A, B):\n    path = os.path.join(BASE, d)\n    os.makedirs(path, exist_ok=True)",
    ],
)
def test_an_install_finds_the_folder_that_a_loop_makes(tmp_path: Path, making: str) -> None:
    first = f'import os\nA = "libs"\nB = "out"\nBASE = "."\n{making}'
    assert run_setup(tmp_path, first, "!cd {A} && pip install a") == ["pip install a"]
    assert (tmp_path / "libs").is_dir()


def test_what_asks_for_colab_is_left_out(tmp_path: Path) -> None:
    cell = """
    from google.colab import files, userdata
    import os
    token = userdata.get("TOKEN")
    if not os.path.exists("key.json"):
        uploaded = files.upload()
        !pip install a
    else:
        !pip install b
    !pip install {token}
    """
    assert run_setup(tmp_path, cell) == ["pip install a", "pip install None"]


def test_what_makes_a_folder_is_no_part_of_an_install_that_prints_too() -> None:
    cell = """
    import os
    if not os.path.exists("rows.txt"):
        print("installing")
        !pip install a
    """
    rows = """
    import os
    rows = load("rows.csv")
    if rows:
        os.makedirs("out", exist_ok=True)
        print(rows)
    def save(folder):
        os.makedirs(folder, exist_ok=True)
        print(folder)
    """
    found = parts(rows, cell)
    assert not [
        statement for statement in found["slice"] if "rows.csv" in statement or "makedirs" in statement
    ]


def test_no_install_makes_no_setup_file() -> None:
    assert SETUP not in converted("!ls", TRAIN).files


def run_setup(tmp_path: Path, *cells: str, code: int = 0) -> list[str]:
    """Run ``setup_env.py`` where `pip` and `git` only note how they were called, and where."""
    conversion = converted(*cells, TRAIN)
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("pip", "git"):
        tool = tools / name
        tool.write_text(f'#!/bin/sh\necho "{name} $*" >> "{tmp_path}/calls"\n[ "$2" != fail ]\n')
        tool.chmod(0o755)
    (tmp_path / SETUP).write_text(conversion.files[SETUP])
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SETUP_TEST": "1"}
    result = subprocess.run(
        [Path(sys.base_prefix, "bin", "python3"), "-W", "error", SETUP],
        cwd=tmp_path,
        env=environment,
        text=True,
        capture_output=True,
    )
    assert result.returncode == code, result.stderr
    calls = tmp_path / "calls"
    return calls.read_text().splitlines() if calls.exists() else []


def test_the_step_installs_what_the_notebook_does(tmp_path: Path) -> None:
    cell = """
    import os
    wanted = ["a", "b"]
    wanted.append("c")
    if "SETUP_TEST" in os.environ:
        !pip install {" ".join(wanted)} "d>=1"
    else:
        !pip install nothing
    for name in wanted[:2]:
        !pip install -U $name
    """
    assert run_setup(tmp_path, cell) == ["pip install a b c d>=1", "pip install -U a", "pip install -U b"]


@pytest.mark.parametrize(
    "cells",
    [
        ("def install(name):\n    !pip install $name", "for name in ['a', 'b']:\n    install(name)"),
        (
            "import importlib\ndef need(names):\n    for name in names:\n        try:\n"
            "            importlib.import_module(name)\n        except ImportError:\n            !pip install $name",
            "need(['a', 'b'])",
        ),
        (
            "def both():\n    first = one('a')\n    if not first:\n        return\n    one('b')",
            "def one(name):\n    !pip install $name\n    return True",
            "done = both()",
        ),
    ],
    ids=["in a loop", "where an import fails", "by way of another"],
)
def test_functions_that_only_install_are_called(tmp_path: Path, cells: tuple[str, ...]) -> None:
    assert run_setup(tmp_path, *cells) == ["pip install a", "pip install b"]


def test_an_install_that_the_step_does_not_reach_is_noted() -> None:
    cells = (
        "def load():\n    !pip install a\n    return open('rows.txt').read()",
        "rows = load()\nrows += 'x'",
    )
    (note,) = (note for note in converted(*cells, TRAIN).notes if note.rule == "installs")
    assert note.why.startswith("nothing installs this")


def test_packages_are_removed_between_the_installs_that_the_notebook_has_around_it(tmp_path: Path) -> None:
    removes = """
    import site, shutil
    from pathlib import Path
    folders = list(site.getsitepackages()) + [site.getusersitepackages()]
    for folder in map(Path, folders):
        for found in folder.glob("no_such_package*"):
            shutil.rmtree(found)
    """
    cells = [
        "!pip install a",
        "!rm -rf /tmp/no/dist-packages/a*",
        removes,
        "!pip install --force-reinstall a",
    ]
    cells = [*map(dedent, cells), "import a\nimport shutil\nshutil.rmtree('old')"]
    assert run_setup(tmp_path, *cells) == ["pip install a", "pip install --force-reinstall a"]
    files = converted(*cells, TRAIN).files
    order = [
        files[SETUP].index(text) for text in ("install a", "rm -rf", "rmtree(found)", "--force-reinstall")
    ]
    assert order == sorted(order)
    assert "packages" not in files[SCRIPT]
    assert 'shutil.rmtree("old")' in files[SCRIPT].replace("'", '"')


def test_a_failing_install_does_not_stop_the_step(tmp_path: Path) -> None:
    assert run_setup(tmp_path, "!pip fail\n!pip install fail\n!pip install b\n") == [
        "pip install fail",
        "pip install b",
    ]


@pytest.mark.parametrize(
    "call",
    [
        'subprocess.run(["pip", "install", "fail"], check=True)',
        'subprocess.check_call("pip install fail", shell=True)',
    ],
)
def test_a_failing_install_that_the_notebook_checks_stops_the_step(tmp_path: Path, call: str) -> None:
    calls = run_setup(tmp_path, f"import subprocess\n{call}\n!pip install b\n", code=1)
    assert calls == ["pip install fail"]


def test_an_install_falls_back_where_the_first_fails(tmp_path: Path) -> None:
    cell = """
    import os, subprocess
    try:
        subprocess.run("pip install fail", shell=True, check=True)
    except subprocess.CalledProcessError:
        subprocess.run(["pip", "install", "b"])
    if os.system("pip install fail") == 0:
        !pip install c
    """
    assert run_setup(tmp_path, cell) == ["pip install fail", "pip install b", "pip install fail"]


def test_a_bash_cell(tmp_path: Path) -> None:
    assert run_setup(tmp_path, "%%bash\npip install a\nfor p in {b,c}; do pip install $p; done\n") == [
        "pip install a",
        "pip install b",
        "pip install c",
    ]


def test_an_install_whose_output_is_kept(tmp_path: Path) -> None:
    assert run_setup(tmp_path, "out = !pip install a\nprint(out)\n") == ["pip install a"]


def test_an_install_in_a_folder_that_is_cloned(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    conversion_calls = run_setup(
        tmp_path, "!git clone https://example.com/a\n%cd a\n!pip install -e . && pwd > ../here\n"
    )
    assert conversion_calls == ["git clone https://example.com/a", "pip install -e ."]
    assert (tmp_path / "here").read_text().strip() == str(tmp_path / "a")


def test_an_install_where_no_folder_is(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    cell = (
        "!git clone https://example.com/a\n%cd not/there\n%cd a\n!pip install -e . && pwd > ../here\n%cd -\n"
    )
    calls = run_setup(
        tmp_path, f"{cell}!git clone https://example.com/b\n!pip install -e ./b && pwd >> here\n"
    )
    assert calls[1::2] == ["pip install -e .", "pip install -e ./b"]
    assert (tmp_path / "here").read_text().split() == [str(tmp_path / "a"), str(tmp_path)]


def test_nothing_else_of_the_notebook_runs_there(tmp_path: Path) -> None:
    run_setup(
        tmp_path, "!pip install a\nopen('seen', 'w')\nraise SystemExit(3)\n", "import not_installed_anywhere"
    )
    assert not (tmp_path / "seen").exists()


@pytest.mark.parametrize(
    "cell",
    [
        "%%writefile needs.txt\na>=1\n",
        "import os\nif not os.path.exists('needs.txt'):\n    open('needs.txt', 'w').write('a>=1\\n')",
        "lines = ['a>=1\\n']\nopen('needs.txt', 'w').writelines(lines)",
    ],
)
def test_an_install_has_the_file_that_the_notebook_writes_for_it(tmp_path: Path, cell: str) -> None:
    assert run_setup(tmp_path, cell, "!pip install -r needs.txt") == ["pip install -r needs.txt"]
    assert (tmp_path / "needs.txt").read_text() == "a>=1\n"


def test_a_file_that_no_install_names_is_not_written_there() -> None:
    cells = ("with open('log.txt', 'w') as file:\n    file.write('a')", "!pip install -r needs.txt")
    assert parts(*cells)["slice"] == [system("pip install -r needs.txt")]


def test_a_block_that_installs_leaves_out_what_uses_values_of_the_notebook(tmp_path: Path) -> None:
    version, use = "version = '==1'", "open('seen', 'w')\nmodel = 1"
    block = """
    try:
        !pip install first
        import not_installed_anywhere
        print(model)
    except ImportError:
        wanted = "b" + version
        !pip install {wanted}
        print(model)
    """
    assert run_setup(tmp_path, version, use, block) == ["pip install first", "pip install b==1"]
    assert not (tmp_path / "seen").exists()
