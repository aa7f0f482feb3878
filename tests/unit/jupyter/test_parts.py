"""The parts of %run_ddp that need no kernel: reading output, choosing cells, drawing, GPUs."""

from __future__ import annotations

import ast
import json
import re
import signal
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from nb2ddp.conversion.pipeline import convert_notebook
from nb2ddp.errors import LaunchError
from nb2ddp.jupyter import html as html_of_run
from nb2ddp.jupyter import kernel_gpu, live, run_process
from nb2ddp.jupyter.environment import ranks_environment
from nb2ddp.jupyter.history import Chosen, Ran, choose
from nb2ddp.jupyter.magic import _remarks
from nb2ddp.jupyter.result import Places, Result, failure
from nb2ddp.launch.run import Launch
from nb2ddp.monitor import charts
from nb2ddp.monitor.nvml import Load, Watch
from nb2ddp.monitor.progress import Progress
from nb2ddp.source.notebook import Cell, Notebook
from tests.e2e.test_magic import DATA, LOOP, MODEL
from tests.support import ROOT
from tests.support.helpers import converted


def history(*cells: tuple[str, str]) -> list[Ran]:
    return [Ran(n, source, True, name) for n, (name, source) in enumerate(cells, start=1)]


def order(*cells: tuple[str, str]) -> list[str]:
    return [ran.source for ran in choose(history(*cells)).cells]


def test_a_cell_that_ran_again_stands_last_when_nothing_needs_it_earlier() -> None:
    assert order(("a", "print(1)"), ("b", "f = 1"), ("a", "print(f)")) == ["f = 1", "print(f)"]


def test_a_cell_that_ran_again_stays_when_what_follows_needs_it() -> None:
    cells = [("a", "import os"), ("b", "os.getpid()"), ("a", "import os, sys")]
    assert order(*cells) == ["import os, sys", "os.getpid()"]


def test_all_cells_run_again_come_in_their_new_order() -> None:
    cells = [("a", "m = 1"), ("b", "m = m + 1"), ("a", "m = 2"), ("b", "m = m + 2")]
    assert order(*cells) == ["m = 2", "m = m + 2"]


def test_a_plain_cell_that_became_a_run_ddp_cell_is_no_part_any_more() -> None:
    chosen = choose(history(("a", "x = 1"), ("t", "trainer.train()"), ("t", "%%run_ddp\ntrainer.train()")))
    assert [ran.source for ran in chosen.cells] == ["x = 1"]
    assert chosen.left_out == ("[2] is a %%run_ddp cell now",)


def test_the_curve_is_a_picture() -> None:
    svg = charts.curve_svg({"loss": [(1, 3.0), (2, 2.0), (4, 1.5)], "eval_loss": [(2, 2.5), (4, 2.0)]})
    lines = [element for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("polyline")]
    points = [[float(n) for n in p.split(",")] for p in lines[0].attrib["points"].split()]
    assert points[0][1] < points[1][1] < points[2][1], "down is less"
    assert len(lines) == 2
    assert charts.curve_svg({"loss": [(1, 3.0)]}) == ""
    long = charts.curve_svg({"loss": [(float(n), 1.0) for n in range(10_000)]})
    assert long.count(",") <= 501
    assert charts.sparkline([(1, 2.0), (2, 1.0)]) == "2 █▁ 1"


def test_text_in_html_is_text() -> None:
    html = html_of_run.live_html(
        Progress(stage="<s>"), title="<t>", seconds=1, loads=[], logs={"<l>": "a b/<p>.log"}, state="running"
    )
    assert [tag for tag in ("<s>", "<t>", "<l>", "<p>") if tag in html] == []
    assert "&lt;s&gt;" in html
    assert "a%20b/%3Cp%3E.log" in html


def test_gpus_are_in_the_display() -> None:
    gib = 1 << 30
    loads = [Load(0, 1 * gib, 15 * gib, 97), Load(1, 2 * gib, 15 * gib)]
    html = html_of_run.live_html(Progress(), title="t", seconds=1, loads=loads, logs={}, state="running")
    assert "1.0 of 15 GiB" in html
    assert "97 % busy" in html
    assert "rank 1 2.0/15 GiB" in html_of_run.live_text(Progress(), title="t", seconds=1, loads=loads)


def test_the_last_line_of_a_run_has_a_full_bar_and_no_stage() -> None:
    progress = Progress()
    progress.feed("step 3 loss 1.5\nnb2ddp: 2 replicas equal, bit for bit, after 4 steps\n")
    shown = html_of_run.live_text(progress, title="Trained", seconds=1, state="done")
    assert shown == f"Trained 0:01 [{'#' * 20}]  step 4  loss 1.5"


def test_without_torch_nothing_is_held() -> None:
    code = (
        "import sys; from nb2ddp.jupyter import kernel_gpu; "
        "print(kernel_gpu.held(), kernel_gpu.free({'x': 1}), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] [] False"


def test_what_holds_memory_is_named_and_dropped() -> None:
    import torch

    model = torch.nn.Linear(100, 10)
    trainer = type("MyTrainer", (), {"__module__": "trl"})()
    trainer.model = model
    optimizer = torch.optim.Adam(model.parameters())
    tensor = torch.zeros(1000)
    names: dict[str, object] = {
        "model": model, "trainer": trainer, "optimizer": optimizer, "batch": {"input_ids": [tensor[:10]]},
        "again": tensor, "torch": torch, "Model": torch.nn.Linear, "text": "x", "Out": {3: tensor},
    }  # fmt: skip
    size = 4 * (100 * 10 + 10)
    expected = dict(model=size, trainer=size, optimizer=size, batch=4000, again=4000, Out=4000)
    assert kernel_gpu.holders(names, "cpu") == expected
    assert kernel_gpu.holders(names) == {}
    assert kernel_gpu.free(names, "cpu") == list(expected)
    assert names.keys() == {"torch", "Model", "text", "Out"}
    assert names["Out"] == {}


def test_what_is_dropped_is_gone_before_the_memory_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    models = [torch.nn.Linear(100, 10), torch.nn.Linear(10, 10)]
    alive = [weakref.ref(model) for model in models]
    names: dict[str, object] = {"large": models[0], "small": models[1]}
    models.clear()
    seen: list[bool] = []
    monkeypatch.setattr(
        torch.cuda, "empty_cache", lambda: seen.extend(model() is not None for model in alive)
    )
    kernel_gpu.free(names, "cpu")
    assert seen == [False, False]


def test_a_scripts_environment_has_nothing_of_the_kernels_libraries() -> None:
    initial = {"PATH": "/bin", "UNSLOTH_MINE": "1"}
    now = {**initial, "UNSLOTH_ZOO_IS_PRESENT": "1", "MPLBACKEND": "inline", "HF_TOKEN": "x"}
    assert ranks_environment(now, initial, session=True) == initial
    assert ranks_environment(now, initial, session=False) == {**initial, "HF_TOKEN": "x"}


def places() -> tuple[Places, list[str]]:
    sources = [DATA, MODEL, f"%%time\n{LOOP}"]
    cells = tuple(Cell("code", source, number) for number, source in zip((7, 3, 9), sources, strict=True))
    conversion = convert_notebook(Notebook(Path("n.ipynb"), cells, "python"))
    assert conversion.script is not None, conversion.declined
    text = conversion.script.text.split("\n")
    return Places(Path("/x/train_ddp.py"), conversion.script.places), text


@pytest.mark.parametrize("single_file", [False, True])
def test_a_run_that_saves_nothing_is_remarked_before_it(single_file: bool) -> None:
    def remarks(more: str = "") -> list[str]:
        conversion = converted(MODEL, DATA, LOOP + more, single_file=single_file)
        return _remarks(conversion, Chosen((), ()), None)

    assert any("nothing is saved" in remark and "torch.save" in remark for remark in remarks())
    assert not any("nothing is saved" in remark for remark in remarks('\nmodel.save_pretrained("lora")'))


def test_a_run_of_lightnings_saves_by_itself() -> None:
    fits = "import lightning as L\nL.Trainer(max_epochs=1).fit(model, loader)"
    assert not any("saved" in remark for remark in _remarks(converted(fits), Chosen((), ()), None))


def test_why_a_run_cannot_start_is_shown_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(_: Launch) -> int:
        raise LaunchError("No GPU is visible here.")

    monkeypatch.setattr("nb2ddp.launch.run.launch", refuse)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit):
        run_process.main(
            json.dumps({"script": "a.py", "nproc": 2, "cpu": True, "log_dir": "logs", "cwd": "."})
        )
    printed = capsys.readouterr().err
    assert printed.startswith(live._LAST_WORDS), "the display leaves it to the error"
    assert failure(printed.splitlines(), places()[0])[0] == "the run cannot start: No GPU is visible here."


def test_every_line_of_the_users_leads_back_to_its_cell() -> None:
    made, text = places()
    for code, cell, line in (
        ("import torch", 7, 2),
        ("class TinyModel(torch.nn.Linear):", 3, 1),
        ("    loss.backward()", 9, 4),
        ("    time.sleep(pause)", 9, 8),
    ):
        numbers = [n for n, there in enumerate(text, start=1) if there == code]
        place = made.of[numbers[-1]]
        assert (place.cell, place.line) == (cell, line)
    assert 1 not in made.of


def test_a_chain_of_exceptions_is_kept_whole() -> None:
    made, text = places()
    line = text.index("    loss.backward()") + 1
    own = 1
    assert own not in made.of
    trace = [
        "Traceback (most recent call last):",
        '  File "/lib/torch.py", line 3, in f',
        "KeyError: 'a'",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        f'  File "/x/train_ddp.py", line {own}, in end_on_error',
        "    raise error",
        f'  File "/x/train_ddp.py", line {line}, in <module>',
        "    loss.backward()",
        "RuntimeError: no",
    ]
    quoted = [f"{text}  # cell 9, line 4" if "<module>" in text else text for text in trace]
    verdict = "rank 1 failed first (exit code 1): RuntimeError: no"
    detail = ["        at cell 9, line 4 (train_ddp.py, line 1)", "        what to do: mend it"]
    said = ["Traceback (most recent call last):", "  of rank 0", "OSError: x", "nb2ddp: rank 1 printed last:"]
    sentence, shown = failure([*said, *quoted, f"nb2ddp: {verdict}", *detail], made)
    assert sentence == f"{verdict}\nwhat to do: mend it"
    assert shown == [*trace[:7], f"  Cell In[9], line 4, in <module>  (train_ddp.py:{line})", *trace[10:]]
    # rank 0, which recorded nothing: its traceback stands above
    printed = ["nb2ddp: rank 0 failed first (exit code 1)", "        what it printed is above"]
    assert failure([*trace, *printed], made)[1] == shown
    # rank 1 was killed: the traceback above is that of another rank
    assert failure([*trace, "nb2ddp: rank 1 failed first (ended by SIGKILL)", *detail], made)[1] == []
    assert failure([], made) == ("it ended before it began", [])


def result(folder: Path, *names: str, script: str = "") -> Result:
    files = []
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"task_type": "SEQ_CLS"}))
        files.append(path)
    records = [{"step": 1.0, "loss": 2.0}, {"step": 2.0, "loss": 1.0}]
    return Result(files, script, exit_code=0, seconds=1.0, folder=folder, records=records)


def test_each_attribute_of_the_result_that_a_page_names_is_there(tmp_path: Path) -> None:
    made = result(tmp_path)
    assert made.losses == [(1, 2.0), (2, 1.0)]
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), ROOT / "nb2ddp" / "jupyter" / "magic.py"]
    names = {
        name for page in pages for name in re.findall(r"\b_ddp\.(\w+)", page.read_text(encoding="utf-8"))
    }
    assert len(names) > 5
    for name in names:
        assert hasattr(made, name), name


def test_how_to_load_what_was_saved(tmp_path: Path) -> None:
    adapter = "lora/adapter_config.json"
    checkpoint = "outputs/checkpoint-9/adapter_config.json"
    assert result(tmp_path).how_to_load == ""
    made = result(tmp_path, adapter, checkpoint)
    assert "AutoPeftModelForSequenceClassification" in made.how_to_load
    assert made.adapter == tmp_path / "lora"
    assert result(tmp_path, checkpoint).adapter == tmp_path / "outputs/checkpoint-9"
    assert "AutoModel.from_" in result(tmp_path / "full", "model/config.json").how_to_load
    parts = ["emb/modules.json", "emb/config.json", "emb/1_Pooling/config.json"]
    line = result(tmp_path / "st", *parts).how_to_load
    assert line.endswith(f'SentenceTransformer("{tmp_path}/st/emb")')
    unsloth = result(tmp_path, adapter, script="model = FastModel.from_pretrained('x')")
    assert unsloth.how_to_load.startswith(
        "from unsloth import FastModel; model, tokenizer = FastModel.from_pre"
    )


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("BertForSequenceClassification", "from transformers import BertForSequenceClassification; model = "),
        ("ClassOfTheNotebook", ""),
    ],
)
def test_how_to_load_a_class_of_transformers_alone(name: str, line: str, tmp_path: Path) -> None:
    made = result(tmp_path, "model/config.json")
    (tmp_path / "model" / "config.json").write_text(json.dumps({"architectures": [name]}))
    assert made.how_to_load[: len(line) or None] == line


@pytest.mark.parametrize("name", ['a"b', "back\\slash", "line\nbreak", "\x1b[31mred", '"); print("', "it's"])
@pytest.mark.parametrize("script", ["", "FastModel.from_pretrained('x')"])
def test_how_to_load_from_a_nasty_folder(name: str, script: str, tmp_path: Path) -> None:
    for file in ("adapter_config.json", "config.json"):
        made = result(tmp_path / name, f"{file[0]}/{file}", script=script)
        assert made.how_to_load.isprintable()
        (call,) = (node for node in ast.walk(ast.parse(made.how_to_load)) if isinstance(node, ast.Call))
        assert ast.literal_eval(call.args[0]) == str(tmp_path / name / file[0])


def test_a_result_shows_the_closing_block(tmp_path: Path) -> None:
    facts = [("time", "0:05"), ("loss", "2 -> 1"), ("ranks", "2 replicas equal"), ("logs", "<run_ddp>/logs")]
    made = replace(result(tmp_path, "lora/adapter_config.json"), facts=facts)
    assert repr(made).splitlines()[2:-1] == [
        "loss: 2 -> 1",
        "ranks: 2 replicas equal",
        "logs: <run_ddp>/logs",
    ]
    assert repr(made).endswith(made.how_to_load)
    assert "loss 2 -&gt; 1 · ranks 2 replicas equal</div>" in made._repr_html_()
    failed = replace(made, exit_code=1, error="rank 1 failed first")
    assert "replicas" not in repr(failed) + failed._repr_html_()


@pytest.mark.parametrize(
    ("files", "sentence"), [(["model.pt"], "load what the cell has saved"), ([], "Nothing was saved")]
)
def test_a_result_says_that_the_kernels_model_is_not_the_trained_one(
    files: list[str], sentence: str, tmp_path: Path
) -> None:
    made = result(tmp_path, *files)
    assert sentence in repr(made)
    assert sentence in made._repr_html_()
    assert sentence not in repr(replace(made, exit_code=1))


def test_plots(tmp_path: Path) -> None:
    made = result(tmp_path)
    assert "polyline" in made.plot()._repr_html_()
    assert repr(made.plot("loss")) == "loss 2 █▁ 1"
    with pytest.raises(ValueError, match="lr was not logged twice; there are loss"):
        made.plot("lr")


def test_importing_nb2ddp_stays_light() -> None:
    code = "import sys, nb2ddp; print({'IPython', 'libcst', 'torch', 'jinja2'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_on_kaggle_importing_is_enough(tmp_path: Path) -> None:
    code = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("import nb2ddp")
print(shell.find_cell_magic("run_ddp") is not None)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"KAGGLE_KERNEL_RUN_TYPE": "Interactive", "IPYTHONDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "True", done.stderr


TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1\nValueError: broken\n'
VERDICT = "nb2ddp: rank 0 failed first (exit code 1): ValueError: broken\nnb2ddp: the traceback:\n" + TRACE


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        ([(0, "a\n"), (0, TRACE), (30, VERDICT)], False),  # a run that takes long to end
        ([(0, TRACE), (2, "b\n"), (4, "")], True),  # one that handles it and goes on
        ([(0, TRACE), (61, "")], True),  # in silence
        ([(0, TRACE), (2, "b\n"), (1, VERDICT), (9, "")], False),
    ],
)
def test_a_traceback_is_shown_at_once_where_the_run_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    texts: list[tuple[int, str]],
    shown: bool,
) -> None:
    """Only in the end it is shown in our own way: it is to be there once."""
    clock = 100.0

    class Ends:
        seconds = 1.0

        def read(self, _: float) -> str | None:
            nonlocal clock
            if not texts:
                return None
            passed, text = texts.pop(0)
            clock += passed
            return text

    monkeypatch.setattr("time.monotonic", lambda: clock)
    run = live.Live(Progress(), Ends(), tmp_path, tmp_path, Watch(""), show=None)  # type: ignore[arg-type]
    assert run.follow() == 0
    run.end("failed")
    assert ("ValueError" in capsys.readouterr().out) is shown
