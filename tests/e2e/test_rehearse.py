"""The rehearsal as people use it: what it compares, what it replaces, what it says and how it ends."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from click.testing import CliRunner

import nb2ddp
from nb2ddp import convert
from nb2ddp.cli import main
from nb2ddp.ddp_folder import SCRIPT
from nb2ddp.errors import RehearsalError
from nb2ddp.options import Options
from nb2ddp.rehearse.evidence import ADVICE
from nb2ddp.rehearse.harness import models
from nb2ddp.rehearse.runs import REFERENCE, Settings, prepare
from nb2ddp.rehearse.subject import subject_of, subject_of_script
from tests.e2e.test_magic import DATA, LOOP, MODEL, SAVE
from tests.support import ROOT
from tests.support.helpers import notebook

SAMPLES = ROOT / "sample_notebooks"
TRAINS = (
    "from trl import SFTConfig, SFTTrainer\n"
    "trainer = SFTTrainer(model=model, train_dataset=data, args=SFTConfig(per_device_train_batch_size=2))\n"
    "trainer.train()"
)
LOADS = 'from unsloth import FastLanguageModel\nmodel, tokenizer = FastLanguageModel.from_pretrained("m/m")'


def saved(folder: Path, *cells: str) -> Path:
    path = folder / "test.ipynb"
    nbformat.write(notebook(*cells), path)
    return path


# ---------------------------------------------------------------------------------------------------------
# What is rehearsed


def test_the_script_is_the_converted_one_byte_for_byte() -> None:
    subject = subject_of(SAMPLES / "alpaca_sft.ipynb")
    assert subject.script == convert(SAMPLES / "alpaca_sft.ipynb").files["train_ddp.py"]


def test_the_folder_of_a_conversion_is_rehearsed_as_it_is(tmp_path: Path) -> None:
    path = saved(tmp_path, LOADS, "data = []", TRAINS)
    result = CliRunner().invoke(main, ["convert", str(path), "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    script = tmp_path / "out" / "train_ddp.py"
    script.write_text(script.read_text() + "# edited\n")
    assert subject_of(tmp_path / "out").script.endswith("# edited\n")
    path.unlink()
    with pytest.raises(
        RehearsalError, match=r"The notebook .*test\.ipynb, which .* was made from, is not found"
    ):
        subject_of(tmp_path / "out")


@pytest.mark.launch
@pytest.mark.thorough
def test_a_script_that_shards_the_model_is_rehearsed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    made = CliRunner().invoke(
        main, ["convert", str(SAMPLES / "alpaca_sft.ipynb"), "--strategy", "fsdp", "-o", str(out)]
    )
    assert made.exit_code == 0
    assert "nb2ddp rehearse" in made.output
    done = CliRunner().invoke(main, ["rehearse", str(out), "--steps", "2", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    points = {point["title"]: point for point in report["points"]}
    assert all(point["state"] == "passed" for point in points.values()), points
    assert re.match(r"equal, bit for bit, .* \(relative\) from", points["replicas"]["measured"])


def test_modules_beside_the_script_come_along_and_only_with_it(tmp_path: Path) -> None:
    path = saved(tmp_path, LOADS, "data = []", TRAINS)
    out = tmp_path / "out"
    result = CliRunner().invoke(main, ["convert", str(path), "-o", str(out)])
    assert result.exit_code == 0, result.output
    made = set(subject_of(out).modules)
    (out / "train_ddp.py").write_text("import os\nfrom mine import x\n" + (out / "train_ddp.py").read_text())
    (out / "mine.py").write_text("import mine_too, os\nx = 1\n")
    (out / "mine_too.py").write_text("import mine\n")
    (out / "no_python.py").write_text("this is no Python")
    subject = subject_of(out)
    assert set(subject.modules) == made | {"mine.py", "mine_too.py", "no_python.py"}
    script = prepare(tmp_path / "work", "script", subject, Settings(), SCRIPT)
    notebook = prepare(tmp_path / "work", "notebook", subject, Settings(), REFERENCE)
    assert {path.name for path in script.folder.iterdir()} == {SCRIPT, *subject.modules}
    assert {path.name for path in notebook.folder.iterdir()} == {REFERENCE}
    assert (script.folder / "mine.py").read_text() == (out / "mine.py").read_text()


def test_modules_of_a_fresh_conversion_are_those_that_it_writes(tmp_path: Path) -> None:
    path = saved(tmp_path, LOADS, "data = []", TRAINS)
    files = convert(path).files
    modules = subject_of(path).modules
    assert {name: files[name] for name in modules} == modules
    assert {"train_ddp.py", "ddp_support.py"} <= modules.keys()


@pytest.mark.parametrize(
    "start",
    [
        "import ddp_support as ddp\nrank, local_rank, world_size = ddp.init(seed=7)\n",
        "def init(seed=None):\n    pass\nrank, local_rank, world_size = init(7)\n",
    ],
)
def test_the_reference_is_seeded_as_the_runtime_seeds_the_script(tmp_path: Path, start: str) -> None:
    script = tmp_path / "train_ddp.py"
    script.write_text(start)
    code = subject_of_script(saved(tmp_path, "import numpy\nx = numpy.random.rand()"), script).reference
    for line in ("random.seed(7)", "torch.manual_seed(7)", "    numpy.random.seed(7)"):
        assert line in code.splitlines()
    assert code.index("seed(7)") < code.index("x = numpy")
    ast.parse(code)


def test_the_reference_is_the_notebook_with_the_seeds_of_its_script(tmp_path: Path) -> None:
    cells = (LOADS, "import random, time\nrandom.seed(time.time())", "!ls", TRAINS)
    path = saved(tmp_path, *cells)
    code = subject_of(path).reference
    assert "random.seed(time.time())" in code
    assert "get_ipython().system('ls')" in code
    ast.parse(code)
    older = tmp_path / "older.py"
    older.write_text("ddp.init(seed=7)\n")
    assert subject_of_script(path, older).reference.startswith("import random\nrandom.seed(7)\n")


def test_columns_and_markers_are_those_that_the_notebook_reads(tmp_path: Path) -> None:
    masks = 'trainer = train_on_responses_only(trainer, instruction_part="<u>", response_part="<a>")'
    reads = (
        "def prompt(row):\n    row['whole'] = row['question'] + row['answer']\n"
        "    return {'text': row['whole']}\ndata = data.map(prompt)"
    )
    before, train = TRAINS.rsplit("\n", 1)
    subject = subject_of(saved(tmp_path, LOADS, reads, f"{before}\n{masks}\n{train}"))
    assert subject.columns == ("answer", "question")
    assert subject.markers == ("<u>", "<a>")


def test_files_that_the_notebook_names_come_along(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}")
    (tmp_path / "helpers.py").write_text("")
    (tmp_path / "other.txt").write_text("")
    subject = subject_of(saved(tmp_path, f'{LOADS}\nimport helpers\ndata = open("rows.jsonl")', TRAINS))
    assert [path.name for path in subject.files] == ["helpers.py", "rows.jsonl"]


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        (("print(1)",), "was not converted: .*sees no training here"),
        ((LOADS, "x = input()", TRAINS), "was not converted: .*keyboard"),
    ],
)
def test_what_cannot_be_rehearsed_is_told_why(tmp_path: Path, cells: tuple[str, ...], reason: str) -> None:
    result = CliRunner().invoke(main, ["rehearse", str(saved(tmp_path, *cells))])
    assert result.exit_code == 3
    assert re.search(reason, result.output)
    assert [line for line in result.output.splitlines() if re.search(reason, line)] == [
        result.output.splitlines()[-1]
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--data", "name"],
        ["--data", "name=missing.json"],
        ["--steps", "0"],
        ["--nproc", "1"],
        ["--keep", "."],
        ["--keep", "/proc/1/keep"],
        ["--python", "no-such-python"],
        ["--html", "/no/such/folder/page.html"],
        ["--html", "/dev/null"],
        ["--ledger", "/no/such/folder/rows.jsonl"],
        ["--ledger", "README.md"],
    ],
)
def test_a_wrong_command_line_ends_with_2(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(main, ["rehearse", str(SAMPLES / "alpaca_sft.ipynb"), *arguments])
    assert result.exit_code == 2
    assert "preparing" not in result.output, "it is said before anything runs"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("unsloth/Meta-Llama-3.1-8B-bnb-4bit", "llama"),
        ("unsloth/Qwen3-14B", "qwen3"),
        ("unsloth/DeepSeek-R1-Distill-Qwen-7B", "qwen2"),
        ("HuggingFaceH4/zephyr-7b-sft", "mistral"),
        ("google/gemma-3-270m-it", "gemma3_text"),
        ("somebody/else", "llama"),
    ],
)
def test_the_family_of_a_model_is_in_its_name(name: str, kind: str) -> None:
    assert models.family(name) == kind


# ---------------------------------------------------------------------------------------------------------
# Whole rehearsals

HUB_NOTEBOOK = (
    "!pip install unsloth",
    "import torch\nfrom unsloth import FastLanguageModel\n"
    'model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen3-4B", max_seq_length=512,\n'
    "    load_in_4bit=True, fast_inference=False)\n"
    'model = FastLanguageModel.get_peft_model(model, r=8, target_modules=["q_proj", "v_proj"])',
    'from datasets import load_dataset\ndata = load_dataset("somebody/chats", split="train")\n'
    'rules = load_dataset("json", data_files="https://example.org/rules.json", split="train")\n'
    "data = data.map(lambda rows: {'text': [tokenizer.apply_chat_template(turns, tokenize=False)\n"
    "    for turns in rows['messages']]}, batched=True)\nprint(rules[0]['rule'])",
    "from trl import SFTConfig, SFTTrainer\n"
    "trainer = SFTTrainer(model=model, processing_class=tokenizer, train_dataset=data, args=SFTConfig(\n"
    "    per_device_train_batch_size=1, gradient_accumulation_steps=4, num_train_epochs=1, warmup_steps=5,\n"
    '    learning_rate=1e-2, optim="adamw_8bit", seed=3407, output_dir="out", report_to="wandb"))',
    "from unsloth.chat_templates import train_on_responses_only\n"
    'trainer = train_on_responses_only(trainer, instruction_part="<|im_start|>user\\n",\n'
    '    response_part="<|im_start|>assistant\\n")',
    "print(torch.cuda.get_device_properties(0).total_memory)\ntrainer.train()",
    'inputs = tokenizer("so", return_tensors="pt").to("cuda")\n'
    "print(tokenizer.batch_decode(model.generate(**inputs, max_new_tokens=500)))",
    "from huggingface_hub import login, notebook_login\nnotebook_login()\nlogin(token='hf_'+'none')",
    'model.save_pretrained("lora")\nmodel.save_pretrained_gguf("gguf", tokenizer)\n'
    'model.push_to_hub("me/model")\n!touch touched',
)


CLASSIFIER = (
    "import torch\nfrom transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments\n"
    "torch.manual_seed(0)\nmodel = BertForSequenceClassification(BertConfig(vocab_size=40, hidden_size=16,\n"
    "    num_hidden_layers=1, num_attention_heads=2, intermediate_size=32))",
    "ones = torch.ones(9, dtype=torch.long)\nrows = [{'input_ids': torch.randint(1, 40, (9,)),\n"
    "    'attention_mask': ones, 'labels': n % 2} for n in range(60)]",
    "trainer = Trainer(model, TrainingArguments('out', per_device_train_batch_size=8, num_train_epochs=1,\n"
    "    logging_steps=2, report_to='none'), train_dataset=rows)\ntrainer.train()",
)


def rehearsed(target: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    result = CliRunner().invoke(main, ["rehearse", str(target), "--json", *arguments])
    assert result.stdout, result.output
    return result.exit_code, json.loads(result.stdout)


@pytest.mark.launch
@pytest.mark.parametrize(
    ("name", "steps", "unseen"),
    [
        ("loop", 6, {"arguments", "loads"}),  # it has no Trainer, loads nothing, and runs to its end
        ("classifier", 4, {"loads"}),  # of one micro-batch a step, which is divided by rows
        pytest.param("alpaca_sft", 4, set(), marks=pytest.mark.thorough),
    ],
)
def test_a_notebook_passes_and_its_page_stands_alone(
    tmp_path: Path, name: str, steps: int, unseen: set[str]
) -> None:
    path = SAMPLES / f"{name}.ipynb"
    if name == "loop":
        path = tmp_path / "loop.ipynb"
        draws = "import numpy\norder = numpy.random.default_rng().permutation(96)\nx, y = x[order], y[order]"
        loop = LOOP.replace("loss = ", "with torch.autocast('cpu', torch.bfloat16): loss = ")
        loop = loop.replace("    optimizer.", "    if step % 2: optimizer.").replace(
            '.4f}"', '.4f} ({time.time():.2f}s)"'
        )
        nbformat.write(notebook(DATA, draws, MODEL, loop, SAVE), path)
    elif name == "classifier":
        path = saved(tmp_path, *CLASSIFIER).rename(tmp_path / "classifier.ipynb")
    page, rows = tmp_path / "page.html", tmp_path / "rows.jsonl"
    code, report = rehearsed(path, "--html", str(page), "--ledger", str(rows))
    assert (code, report["passed"], report["faults"]) == (0, True, [])
    assert [point["number"] for point in report["points"]][:7] == [1, 2, 3, 4, 5, 6, 7]
    states = {point["title"]: point["state"] for point in report["points"]}
    assert {title for title, state in states.items() if state == "unseen"} == unseen
    assert set(states.values()) <= {"passed", "unseen"}
    assert [row["step"] for row in report["losses"]] == list(range(1, steps + 1))
    html = page.read_text()
    assert html.count("<polyline") == 2
    assert not re.search(r"(?:src|href)\s*=|@import|url\(", html)
    assert f"{name}.ipynb passed" in html
    command = f"nb2ddp rehearse {path} --json --html {page} --ledger {rows}"
    assert command in html
    (row,) = map(json.loads, rows.read_text().splitlines())
    assert (row["notebook"], row["ranks"], row["verdict"]) == (f"{name}.ipynb", 2, "same")
    assert all(row[name] for name in ("replicas_equal", "samples_once", "files_same", "prints_same"))
    assert row["losses"] == [step["one"] for step in report["losses"]]
    assert (row["command"], row["versions"]) == (command, report["versions"])
    assert f"nb2ddp {nb2ddp.__version__}" in html
    assert f"torch {importlib.metadata.version('torch')}" in html
    assert report["date"][:10] in html
    assert not re.search(r"\b[0-9a-f]{12}\b", html), "digests say nothing to a reader"


@pytest.mark.launch
@pytest.mark.thorough
def test_a_notebook_of_the_hub_is_rehearsed_without_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    rules = tmp_path / "rules.jsonl"
    rules.write_text("".join(json.dumps({"rule": f"rule {number}"}) + "\n" for number in range(9)))
    given = f"https://example.org/rules.json={rules}"
    keep = tmp_path / "keep"
    path = saved(tmp_path, *HUB_NOTEBOOK)
    code, report = rehearsed(path, "--steps", "3", "--data", given, "--keep", str(keep))
    assert code == 0, report["faults"]
    assert len(report["losses"]) == 3
    replaced = {item["what"]: item["by"] for item in report["replaced"]}
    assert replaced["the model unsloth/Qwen3-4B"] == "a random qwen3 of 2 layers"
    assert replaced["the data set somebody/chats"] == "512 synthetic rows of messages, rule"
    assert replaced["the data set https://example.org/rules.json"] == f"the first rows of {rules}"
    assert replaced["load_in_4bit"] == "load_in_4bit=False"
    assert replaced["the command `touch touched`"] == "nothing"
    assert replaced["login()"] == "nothing"
    assert replaced["push_to_hub('me/model')"] == replaced["save_pretrained_gguf('gguf')"] == "a record of it"
    assert "rule 0" in (keep / "several-notes" / "rank0.out").read_text()
    assert (keep / "several" / "lora" / "adapter_model.safetensors").exists()
    assert not (keep / "several" / "touched").exists()
    assert list(keep.parent.glob("lora")) == []


# What Unsloth takes on a GPU: arguments that TRL has dropped, `beta` and `tokenizer` for the trainer itself.
DPO_NOTEBOOK = (
    "from unsloth import FastLanguageModel, PatchDPOTrainer\nPatchDPOTrainer()\n"
    'model, tokenizer = FastLanguageModel.from_pretrained("unsloth/zephyr-sft", load_in_fp8=False)\n'
    "model = FastLanguageModel.get_peft_model(model, r=8)",
    'from IPython.display import Audio\nAudio("https://example.org/speech.mp3")',
    'parts = [{"type": "image"}, {"type": "text", "text": "what is it"}]\n'
    'turns = [{"role": "user", "content": parts}]\n'
    'assert "what is it" in tokenizer.apply_chat_template(turns, tokenize=False)',
    'from datasets import load_dataset\ndata = load_dataset("some/preferences", split="train")\n'
    "data = data.select(range(int(0.005 * len(data))))\n"
    'print(data[30]["prompt"], data[30]["chosen"], data[30]["rejected"])',
    "from trl import DPOConfig, DPOTrainer\n"
    "trainer = DPOTrainer(model=model, ref_model=None, train_dataset=data, tokenizer=tokenizer, beta=0.2,\n"
    "    max_prompt_length=64, args=DPOConfig(per_device_train_batch_size=1, gradient_accumulation_steps=4,\n"
    "    warmup_ratio=0.1, generate_during_eval=False, max_steps=30, learning_rate=1e-3, report_to='none'))\n"
    "trainer.train()",
)


@pytest.mark.launch
@pytest.mark.thorough
def test_what_unsloth_takes_on_a_gpu_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, report = rehearsed(saved(tmp_path, *DPO_NOTEBOOK), "--steps", "3")
    assert code == 0, report["faults"]
    assert {point["state"] for point in report["points"]} == {"passed"}
    replaced = {item["what"]: item["by"] for item in report["replaced"]}
    assert replaced["the data set some/preferences"] == "8192 synthetic rows of chosen, prompt, rejected"
    assert replaced["the trainer's argument beta"] == "beta of its configuration"
    assert replaced["Audio(https://example.org/speech.mp3)"] == "nothing"


GRPO_NOTEBOOK = (
    "from unsloth import FastLanguageModel\nfrom vllm import SamplingParams\n"
    'model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen2.5-3B", fast_inference=True)\n'
    "model = FastLanguageModel.get_peft_model(model, r=8)",
    'from datasets import load_dataset\ndata = load_dataset("some/questions", split="train")\n'
    'data = data.map(lambda row: {"prompt": [{"role": "user", "content": row["question"]}]})\n'
    "def right(prompts, completions, **others):\n    return [0.0 for _ in completions]",
    "from trl import GRPOConfig, GRPOTrainer\n"
    "trainer = GRPOTrainer(model=model, processing_class=tokenizer, reward_funcs=[right],\n"
    "    train_dataset=data, args=GRPOConfig(per_device_train_batch_size=1, num_generations=4,\n"
    "    use_vllm=True, vllm_sampling_params=SamplingParams(seed=3407), max_completion_length=8,\n"
    "    learning_rate=1e-3, max_steps=30, report_to='none'))\ntrainer.train()",
    'model.save_lora("lora")\n'
    'out = model.fast_generate(["so"], sampling_params=SamplingParams(top_k=50),\n'
    '    lora_request=model.load_lora("lora"))[0].outputs[0].text\nprint(out)',
)


@pytest.mark.launch
@pytest.mark.thorough
def test_grpo_is_rehearsed_without_vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    keep = tmp_path / "keep"
    code, report = rehearsed(saved(tmp_path, *GRPO_NOTEBOOK), "--steps", "3", "--keep", str(keep))
    assert code == 0, report["faults"]
    states = {point["title"]: point["state"] for point in report["points"]}
    assert states.pop("losses") == "unseen"  # each process draws its own completions
    assert set(states.values()) == {"passed"}
    replaced = {item["what"]: item["by"] for item in report["replaced"]}
    assert replaced["equal rewards of right"] == "numbers made of the texts"
    measured = {point["title"]: point["measured"] for point in report["points"]}
    assert measured["effective batch"] == "4 = 2 + 2 samples per step, the notebook's 4"
    assert measured["replicas"].startswith("equal, bit for bit, at the start and after")
    assert "did not change" not in measured["replicas"]
    assert (keep / "several" / "lora" / "adapter_model.safetensors").exists()


@pytest.mark.launch
def test_a_notebook_that_does_not_run_here_is_told_where(tmp_path: Path) -> None:
    path = saved(tmp_path, LOADS.replace("unsloth", "nowhere"), "data = []", TRAINS)
    result = CliRunner().invoke(main, ["rehearse", str(path)])
    assert result.exit_code == 3
    assert "at `from nowhere import FastLanguageModel`: ModuleNotFoundError" in result.output


def test_every_kind_of_fault_can_be_found_and_has_its_place_and_advice() -> None:
    """A key that no check gives would be a promise of nothing."""
    checks = (ROOT / "nb2ddp" / "rehearse" / "checks").glob("*.py")
    used = {key for path in checks for key in re.findall(r'Fault\(\s*"([\w-]+)"', path.read_text())}
    assert used == set(ADVICE)


# ---------------------------------------------------------------------------------------------------------
# The options of the conversion


def test_a_notebook_is_rehearsed_as_its_options_convert_it(tmp_path: Path) -> None:
    path = saved(tmp_path, LOADS, "data = []", TRAINS)
    for options in (Options(batch="scale"), Options(strategy="fsdp")):
        assert subject_of(path, options).script == convert(path, options=options).files["train_ddp.py"]
        assert subject_of(path, options).script != subject_of(path).script


def test_one_process_has_no_ranks_to_rehearse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = saved(tmp_path, LOADS, "data = []", TRAINS)
    assert (
        CliRunner().invoke(main, ["convert", path.name, "-o", "out", "--strategy", "balanced"]).exit_code == 0
    )
    for command in (["out"], [path.name, "--strategy", "balanced"]):
        result = CliRunner().invoke(main, ["rehearse", *command])
        assert result.exit_code == 3
        assert "there are no ranks to compare" in result.stderr
    result = CliRunner().invoke(main, ["run", "out", "--cpu"])
    assert result.exit_code == 1
    assert "is for one process that spreads the model over all GPUs" in result.stderr
    (tmp_path / "nb2ddp.toml").write_text('strategy = "balanced"\n')
    result = CliRunner().invoke(main, ["rehearse", path.name])
    assert "there are no ranks to compare" in result.stderr, "the options of the folder count as in `convert`"


def test_a_converted_folder_has_had_its_options(tmp_path: Path) -> None:
    path = saved(tmp_path, LOADS, "data = []", TRAINS)
    out = str(tmp_path / "out")
    assert CliRunner().invoke(main, ["convert", str(path), "-o", out]).exit_code == 0
    result = CliRunner().invoke(main, ["rehearse", out, "--strategy", "fsdp"])
    assert result.exit_code == 2
    assert "--strategy is an option of the conversion" in result.stderr
