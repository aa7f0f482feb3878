"""What a rank knows without the others: whether it is rank 0, what a GPU can do, plots, versions that differ."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.ranks import Ended
from tests.unit.runtime.conftest import RANK_COUNTS, START

Run = Callable[..., Ended]

# Neither matplotlib nor xformers is in the test environments; the names are theirs.
PYPLOT = """
import sys, types
class Figure:
    gca = None
    def savefig(self, name):
        with open(name, "x") as file:
            file.write(str(self.number))
def figure(number):
    made = Figure()
    made.number = number
    return made
pyplot = types.ModuleType("matplotlib.pyplot")
shown = [1, 4]
pyplot.get_fignums, pyplot.figure, pyplot.close = lambda: list(shown), figure, lambda which: shown.clear()
sys.modules["matplotlib"] = types.ModuleType("matplotlib")
sys.modules["matplotlib.pyplot"] = sys.modules["matplotlib"].pyplot = pyplot
ddp.save_plots()
note(shown=list(shown))
shown.append(2)
ddp.save_plots()
assert ddp.show() is None
handle = ddp.show(figure(7), "a text", display_id=True)
handle.update("another")
handle.display(figure(8))
"""


@pytest.mark.parametrize("ranks", [0, 2, 3])
def test_plots_are_saved_once(run: Run, ranks: int) -> None:
    ended = run(PYPLOT, ranks)
    assert not any(ended.codes), ended.text
    assert [notes["shown"] for notes in ended.notes] == [[]] * max(ranks, 1)
    plots = {path.name: path.read_text() for path in ended.folder.glob("*.png")}
    assert plots == {
        "plot_1.png": "1",
        "plot_2.png": "4",
        "plot_3.png": "2",
        "plot_4.png": "7",
        "plot_5.png": "8",
    }
    assert [rank.out for rank in ended.ranks] == ["'a text'\n'another'\n"] + [""] * (max(ranks, 1) - 1)


# Optuna is not in the test environments either.
OPTUNA = """
import sys, types
class Study:
    directions, trials = ["minimize"], ()
    def add_trials(self, trials):
        self.trials = [*self.trials, *trials]
def load_study(study_name, storage):
    return (Stored if storage == "sqlite:///trials.db" else storage)[study_name]
def create_study(study_name, storage, directions):
    assert directions == ["minimize"]
    storage[study_name] = Study()
    return storage[study_name]
optuna = types.ModuleType("optuna")
optuna.load_study, optuna.create_study = load_study, create_study
optuna.samplers = types.SimpleNamespace(TPESampler=lambda seed: seed)
optuna.storages = types.SimpleNamespace(InMemoryStorage=dict)
sys.modules["optuna"] = optuna
Stored = {"mine": Study()}
Stored["mine"].add_trials([f"of rank {rank}", "last"])
class Trainer:
    def hyperparameter_search(self, **options):
        storage = options.get("storage")
        known = load_study(options["study_name"], storage).trials if storage and options["study_name"] == "mine" else []
        note(known=list(known), named=storage == "sqlite:///trials.db", seed=options["sampler"])
class Searched(ddp._SearchedAlike, Trainer):
    pass
for name in ("mine", "new"):
    Searched().hyperparameter_search(storage="sqlite:///trials.db", study_name=name, load_if_exists=True)
Searched().hyperparameter_search(study_name="mine")
"""


def test_a_search_goes_on_with_rank_0s_stored_trials(run: Run) -> None:
    ended = run(OPTUNA)
    assert not any(ended.codes), ended.text
    first, second = (rank.history for rank in ended.ranks)
    assert [notes["known"] for notes in first] == [["of rank 0", "last"], [], []]
    assert [notes["known"] for notes in second] == [["of rank 0", "last"], [], []]
    assert [notes["named"] for notes in (*first, *second)] == [True, True, False, False, False, False]
    assert [notes["seed"] for notes in first] == [notes["seed"] for notes in second]


@pytest.mark.parametrize("ranks", [0, 2])
def test_help_waits_for_no_key_of_a_terminal(run: Run, ranks: int) -> None:
    ended = run(
        """
        import os, pty, signal, sys, time
        child, _ = pty.fork()
        if child == 0:
            code = "import pydoc; pydoc.pager(chr(10) * 80)"
            os.execve(sys.executable, [sys.executable, "-c", code], os.environ | {"TERM": "xterm"})
        until = time.monotonic() + 20
        while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < until:
            time.sleep(0.1)
        note(ended=ended == (child, 0))
        os.kill(child, signal.SIGKILL) if ended == (0, 0) else None
        """,
        ranks,
    )
    assert [notes["ended"] for notes in ended.notes] == [True] * max(ranks, 1), ended.text


# Of Plotly's figures, which show themselves in a browser, only what writes them to a file.
FIGURE = """
class Figure:
    def write_html(self, path):
        open(path, "x").write("a figure")

ddp.show(Figure())
ddp.show(Figure())
"""


@pytest.mark.parametrize("ranks", [0, 2])
def test_figures_of_plotly_are_saved_once(run: Run, ranks: int) -> None:
    ended = run(FIGURE, ranks)
    assert not any(ended.codes), ended.text
    assert {path.name for path in ended.folder.glob("plot_*")} == {"plot_1.html", "plot_2.html"}


@pytest.mark.parametrize("ranks", [0, 2, 3])
def test_what_a_rank_knows_of_itself(run: Run, ranks: int) -> None:
    ended = run("ddp.show(3)\nddp.show(None)\nnote(main=ddp.is_main_process, bf16=ddp.has_bf16)\n", ranks)
    assert not any(ended.codes), ended.text
    assert [notes["main"] for notes in ended.notes] == [rank == 0 for rank in range(max(ranks, 1))]
    assert all(notes["bf16"] for notes in ended.notes)  # CPUs compute with bf16
    assert [rank.out for rank in ended.ranks] == ["3\n"] + [""] * (max(ranks, 1) - 1)


@pytest.mark.parametrize("ranks", [0, 2])
def test_modules_beside_the_notebook_are_found(run: Run, ranks: int) -> None:
    """In the working folder of the moment, which need not be the script's."""
    beside = f"""
import os, pathlib
folder = pathlib.Path("work" + os.environ.get("RANK", ""))
folder.mkdir()
os.chdir(folder)
pathlib.Path("helper.py").write_text("WORD = 'found'")
pathlib.Path("repo").mkdir()
pathlib.Path("repo/later.py").write_text("from helper import WORD")
{START}"""
    ended = run("import helper\nos.chdir('repo')\nimport later\nnote(word=later.WORD)\n", ranks, start=beside)
    assert not any(ended.codes), ended.text
    assert [notes["word"] for notes in ended.notes] == ["found"] * max(ranks, 1)


ALONE = """
import os, torch
from accelerate import Accelerator
model = Accelerator(cpu=True).prepare(torch.nn.Linear(2, 1))
note(told=[name for name in ("RANK", "WORLD_SIZE") if name in os.environ], kind=type(model).__name__)
"""


@pytest.mark.parametrize("ranks", [0, 1])
def test_a_single_rank_is_no_launched_process_to_libraries(run: Run, ranks: int) -> None:
    """Accelerate would wrap the model with DDP: attributes that a notebook sets would go astray."""
    ended = run(ALONE, ranks)
    assert ended.notes == [{"told": [], "kind": "Linear"}], ended.text


PIPELINE = """
import torch
from transformers import BertConfig, BertModel, BertTokenizer, pipeline
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
folder = f"rank{rank}"
config = BertConfig(vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
BertModel(config).save_pretrained(folder)
with open(f"{folder}/vocab.txt", "w") as file:
    file.write("\\n".join(words))
tokenizer = BertTokenizer(f"{folder}/vocab.txt")
load = BertModel.from_pretrained
ways = {
    "a name": lambda: {"model": folder},
    "a name and a map": lambda: {"model": folder, "device_map": {"": "cpu"}},
    "a map in model_kwargs": lambda: {"model": folder, "model_kwargs": {"device_map": {"": "cpu"}}},
    "a model": lambda: {"model": load(folder)},
    "another GPU": lambda: {"model": folder, "device": "cuda:5"},
    "the CPU": lambda: {"model": folder, "device": -1},
}
on_cpu = ddp.own_gpu(pipeline)("feature-extraction", tokenizer=tokenizer, **ways["a name"]())
note(on_cpu=[str(on_cpu.device), len(on_cpu("a b")[0])])
hidden, to, moved = torch.cuda.is_available, BertModel.to, []
for joined in (False, True):
    if joined:
        ddp.init_process_group()
    torch.cuda.is_available = lambda: True
    BertModel.to = lambda model, device: moved.append(str(device)) or model
    for way, options in ways.items():
        moved.clear()
        made = ddp.own_gpu(pipeline)("feature-extraction", tokenizer=tokenizer, **options())
        note(**{f"{way}, joined={joined}": [str(made.device), *moved]})
    torch.cuda.is_available, BertModel.to = hidden, to
"""


@pytest.mark.parametrize("ranks", RANK_COUNTS)
def test_a_pipeline_runs_on_the_gpu_of_its_rank(run: Run, ranks: int) -> None:
    """Transformers places the model where GPUs are only said to be there; `benchmarks/pipelines.py` runs it on two."""
    ended = run(PIPELINE, ranks)
    assert ended.codes == [0] * ranks, ended.text
    for rank, notes in enumerate(ended.notes):
        own = f"cuda:{rank}"
        assert notes.pop("on_cpu") == ["cpu", 4]
        for way, (device, *moved) in notes.items():
            expected = "cuda:5" if "another" in way else "cpu" if "the CPU" in way else own
            assert (way, device, moved) == (way, expected, [] if expected == "cpu" else [expected])
        assert len(notes) == 12


# On a machine without GPUs: a file that says that its tensors were on GPU 0, and a note of where they are to go.
LOADED = """
import pickle, torch
import ddp_support as ddp
has_gpus, seen = torch.cuda.is_available, []
torch.cuda.is_available, torch.cuda.set_device = (lambda: GPUS), seen.append
rank, local_rank, world_size = ddp.init_ranks(seed=0)
torch.cuda.is_available = has_gpus
note(set_device=[*seen])
from torch.serialization import register_package
register_package(9, lambda storage: "cuda:0", lambda storage, location: None)
register_package(16, lambda storage: None, lambda storage, location: seen.append(location) or storage)
name = f"saved-{rank}"
torch.save({"a": torch.ones(3)}, name + ".pt")
with open(name + ".pickle", "wb") as file:
    pickle.dump(torch.ones(3), file)
for way in ("None", "'cuda'", "{'cuda:0': 'cuda:7'}", "torch.device('cuda:3')", "lambda storage, location: storage"):
    seen.clear()
    loaded = torch.load(name + ".pt", map_location=eval(way))
    note(**{way: seen, "a": loaded["a"]})
seen.clear()
with open(name + ".pickle", "rb") as file:
    note(pickle=pickle.load(file).tolist() and seen)
"""


@pytest.mark.parametrize(("ranks", "gpus"), [(0, True), (2, True), (2, False)])
def test_what_was_saved_from_gpu_0_is_loaded_to_the_gpu_of_the_rank(run: Run, ranks: int, gpus: bool) -> None:
    ended = run(LOADED.replace("GPUS", str(gpus)), ranks, start="")
    assert not any(ended.codes), ended.text
    for rank, notes in enumerate(ended.notes):
        own = f"cuda:{rank}" if gpus else "cuda:0"
        assert notes == {
            "set_device": [rank] if ranks and gpus else [],
            "a": [1, 1, 1],
            "None": [own],
            "'cuda'": ["cuda"],
            "{'cuda:0': 'cuda:7'}": ["cuda:7"],
            "torch.device('cuda:3')": ["cuda:3"],
            "lambda storage, location: storage": [],
            "pickle": [own],
        }


COMPILED = """
import torch
from torch.utils.checkpoint import checkpoint

@torch.compile(backend="aot_eager_decomp_partition")
def part(rows, up, down):
    gated = torch.nn.functional.silu(rows @ up) * (rows @ down)
    return (gated / rows.shape[0]).relu().sum(0).softmax(-1) @ down * rows.mean()

torch.manual_seed(0)
up, down = (torch.randn(8, 8, requires_grad=True) for _ in range(2))

def block(rows):
    return sum(part(rows[:count] * 1.0, up, down).sum() for count in (3, 5, 7, 3))

checkpoint(block, torch.randn(16, 8, requires_grad=True), use_reentrant=False).backward()
"""


def test_a_checkpoint_recomputes_with_the_graph_of_its_forward_pass(run: Run) -> None:
    ended = run(f"ddp._recompute_with_the_same_graph()\n{COMPILED}")
    assert not any(ended.codes), ended.text


@pytest.mark.parametrize(("name", "value"), [("WORLD_SIZE", "1"), ("RANK", "0"), ("RANK", "3")])
@pytest.mark.parametrize("when", ["before", "later"])
def test_what_torchrun_told_a_rank_is_not_changed(run: Run, name: str, value: str, when: str) -> None:
    change = f"import os\nfor name in [{name!r}]:\n    os.environ[name] = {value!r}\n"
    begin = f"import ddp_support as ddp\nddp.{'init' if when == 'before' else 'init_ranks'}(seed=0)\n"
    train = "ddp.init_process_group()\nnote(trained=True)\n"
    ended = run(train, start=change + begin if when == "before" else begin + change)
    assert any(ended.codes), ended.text
    assert not ended.hung, ended.text
    assert f"The script has set {name} to {value}, which torchrun had set to" in ended.text
    assert not any(notes.get("trained") for notes in ended.notes)


# As PyTorch's, which needs the package tensorboard: a writer makes its file at once, and some methods make others.
