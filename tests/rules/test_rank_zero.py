"""One rank writes and generates before training ends; nothing that all ranks need is ever gated."""

from __future__ import annotations

import pytest

from nb2ddp.rules.rank_zero import rule
from tests.support.helpers import apply, check_rewritten, check_untouched

HEAD = (
    "import io, json, logging, os, shutil, subprocess, tempfile\n"
    "from pathlib import Path\n"
    "import matplotlib.pyplot as plt\n"
    "import numpy as np\n"
    "import torch, wandb\n"
    "from torch.utils.data import DataLoader\n"
    "from transformers import TrainerCallback\n"
    "from trl import DPOTrainer, SFTConfig, SFTTrainer\n"
)
TRAIN = "t = SFTTrainer(llm)\nt.train()\n"
WRITES = "with ddp.main_process_only() as is_main:  # nb2ddp: one rank writes\n    if is_main:\n"
WRITES_MEANWHILE = "if ddp.is_main_process:  # nb2ddp: one rank writes\n"
RUNS = "with ddp.main_process_only() as is_main:  # nb2ddp: one rank runs it\n    if is_main:\n"
GENERATES = "with ddp.main_process_only() as is_main:  # nb2ddp: one rank generates\n    if is_main:\n"
IN_TURN = "with ddp.in_turn():  # nb2ddp: the ranks write one after another\n"


def indented(code: str) -> str:
    return "".join(f"    {line}\n" for line in code.splitlines())


def within(gate: str) -> str:
    """The second line of a gate in a block that is indented by two."""
    return gate.replace("\n    if", "\n      if")


def deep(code: str) -> str:
    return indented(indented(code))


NOT_GATED = {
    "a file read": 'with open("a") as f:\n    x = f.read()\nwith open("b", "rb") as f:\n    y = f.read()\n',
    "a folder that may exist": 'os.makedirs("out", exist_ok=True)\n',
    "memory": "buffer = io.BytesIO()\ntorch.save(x, buffer)\n",
    "memory in a with block": "with io.StringIO() as text:\n    df.to_csv(text)\n",
    "a temporary file": 'with tempfile.NamedTemporaryFile("w") as f:\n    df.to_csv(f.name)\n',
    "a temporary folder": "folder = tempfile.mkdtemp()\ntorch.save(x, folder)\n",
    "dead code": 'if False:\n    llm.save_pretrained("merged")\n    llm.generate(**x)\n',
    "a function nobody calls": "def show(q):\n    return llm.generate(**q)\n",
    "printing": 'print("start")\n',
    "logging in": "wandb.login()\n",
    "a run of wandb, which the other ranks have switched off": 'run = wandb.init(project="x")\n',
    "a log on the screen": "logging.basicConfig(level=20)\n",
    "a plot on the screen": "plt.plot(x)\nplt.show()\n",
    "an install, which the install step runs": 'os.system("pip install x")\n',
    "what runs in the end": "import atexit\natexit.register(print)\n",
}

NEEDS_ALL = {
    "training": "t = SFTTrainer(llm)\nstats = t.train(resume_from_checkpoint=True)\n",
    "evaluation": "t = SFTTrainer(llm)\nbefore = t.evaluate()\nt.train()\n",
    "prediction": "t = SFTTrainer(llm)\nt.train()\npredictions = t.predict(test)\n",
    "saving by the Trainer": 't = SFTTrainer(llm)\nt.save_model("a")\nt.push_to_hub()\nt.train()\n',
    "how a Trainer saves": (
        'args = SFTConfig("o", save_strategy="steps", logging_steps=1, max_steps=5)\n'
        "t = SFTTrainer(llm, args=args)\nt.train()\n"
    ),
}

WRITTEN = {
    "adapters": 'llm.save_pretrained("start")  # the untrained ones\n',
    "a push": 'llm.push_to_hub("me/m")\n',
    "a folder": 'os.makedirs("out")\n',
    "a folder that must not exist": 'os.makedirs("out", exist_ok=False)\n',
    "a file": 'with open("a.json", "w") as f:\n  json.dump({}, f)\n',
    "a file in one line": 'json.dump(x, open("a.json", mode="w"))\n',
    "a file opened by its path": 'with Path("a").open("a") as f:\n    f.write("x")\n',
    "a file by its path": 'Path("a").write_text("x")\n',
    "tensors": 'torch.save(x, "x.pt")\n',
    "an array": 'np.save("x.npy", x)\n',
    "a table": 'df.to_csv("x.csv")\n',
    "a dataset": 'data.save_to_disk("d")\n',
    "a plot": 'plt.savefig("a.png")\n',
    "a folder removed": 'shutil.rmtree("out", ignore_errors=True)\n',
    "a result that nobody reads later": 'figure = plt.savefig("a.png")\n',
    "a log": 'logging.basicConfig(filename="a.log")\n',
}

RUN = {
    "a command": 'os.system("ls")\n',
    "a process": 'subprocess.run(["ls", "-l"], check=True)\n',
}


@pytest.mark.parametrize("source", NOT_GATED.values(), ids=NOT_GATED.keys())
def test_what_two_processes_may_do_is_left_alone(source: str) -> None:
    assert not check_untouched(rule, HEAD + source + TRAIN).notes


@pytest.mark.parametrize("source", NEEDS_ALL.values(), ids=NEEDS_ALL.keys())
def test_what_needs_every_rank_is_never_gated(source: str) -> None:
    check_untouched(rule, HEAD + source)


@pytest.mark.parametrize("source", [*WRITTEN.values(), "out = llm.generate(**x)\nprint(out)\n"])
def test_after_training_rank_0_is_alone(source: str) -> None:
    check_untouched(rule, HEAD + TRAIN + source)


def test_a_notebook_that_does_not_train_is_left_alone() -> None:
    check_untouched(rule, HEAD + 'llm.save_pretrained("a")\n')


@pytest.mark.parametrize("source", WRITTEN.values(), ids=WRITTEN.keys())
def test_one_rank_writes_and_the_others_wait(source: str) -> None:
    check_rewritten(rule, HEAD + source + TRAIN, HEAD + WRITES + deep(source) + TRAIN)


@pytest.mark.parametrize("source", RUN.values(), ids=RUN.keys())
def test_one_rank_runs_a_command(source: str) -> None:
    check_rewritten(rule, HEAD + source + TRAIN, HEAD + RUNS + deep(source) + TRAIN)


def test_a_python_that_is_started_is_no_rank() -> None:
    after = apply(rule, HEAD + 'subprocess.run(["python", "a.py"], check=True)\n' + TRAIN).code[1]
    assert "env=ddp.environment_without_ranks()" in after
    given = 'subprocess.run(["python", "a.py"], env=mine)\nsubprocess.run(["uv", "python", "list"])\n'
    check_rewritten(rule, HEAD + given + TRAIN, HEAD + RUNS + deep(given) + TRAIN)


def test_neighbours_share_a_gate_and_comments_stay_above() -> None:
    check_rewritten(
        rule,
        HEAD + '# results\nos.makedirs("out")\n# the start\nllm.save_pretrained("out")  # small\n\n' + TRAIN,
        HEAD
        + "# results\n"
        + WRITES
        + '        os.makedirs("out")\n        # the start\n        llm.save_pretrained("out")  # small\n'
        + "\n"
        + TRAIN,
    )


def test_only_the_write_of_a_line_is_gated() -> None:
    check_rewritten(
        rule,
        HEAD + 'df.to_csv("a.csv"); x = 1\n' + TRAIN,
        HEAD + WRITES + '        df.to_csv("a.csv")\n' + "x = 1\n" + TRAIN,
    )


@pytest.mark.parametrize(
    "around", ["if big:", "for i in range(3):", "with timer:", "try:"], ids=["if", "for", "with", "try"]
)
def test_a_write_in_a_block_is_gated_where_it_stands(around: str) -> None:
    end = "except OSError:\n  pass\n" if around == "try:" else ""
    check_rewritten(
        rule,
        HEAD + f"{around}\n  x = 1\n  torch.save(x, 'x.pt')\n{end}" + TRAIN,
        HEAD + f"{around}\n  x = 1\n  {within(WRITES)}          torch.save(x, 'x.pt')\n{end}" + TRAIN,
    )


def test_texts_inside_gated_code_stay_as_they_are() -> None:
    check_rewritten(
        rule,
        HEAD + 'if big:\n  with open("f", "w") as f:\n    f.write("""\none\n  two""")\n' + TRAIN,
        HEAD
        + "if big:\n  "
        + within(WRITES)
        + '          with open("f", "w") as f:\n            f.write("""\none\n  two""")\n'
        + TRAIN,
    )


def test_a_mapped_file_is_made_by_one_rank_after_another() -> None:
    source = 'array = np.memmap("a.bin", mode="w+", shape=3)\n'
    check_rewritten(
        rule,
        HEAD + source + "array[0] = 1\n" + TRAIN,
        HEAD + IN_TURN + indented(source) + "array[0] = 1\n" + TRAIN,
    )


def test_a_function_that_writes_before_training_runs_on_one_rank_after_another() -> None:
    function = (
        'def prepare(x):\n    with open("d", "w") as f:\n        f.write(x)\n    return open("d").read()\n'
    )
    check_rewritten(
        rule,
        HEAD + function + 'data = prepare("x")\n' + TRAIN,
        HEAD + function + IN_TURN + '    data = prepare("x")\n' + TRAIN,
    )


@pytest.mark.parametrize(
    ("definition", "use"),
    [
        (
            "class Log(TrainerCallback):\n  def on_log(self, *args, **kw):\n    BODY",
            "t = SFTTrainer(llm, callbacks=[Log()])\nt.train()\n",
        ),
        (
            "def metrics(p):\n    BODY    return {}\n",
            "t = SFTTrainer(llm, compute_metrics=metrics)\nt.train()\n",
        ),
        (
            "def reward(completions, **kw):\n    BODY    return [1.0]\n",
            "t = SFTTrainer(llm, [reward])\nt.train()\n",
        ),
    ],
    ids=["callback", "metrics", "reward"],
)
def test_a_write_while_training_goes_on_is_gated_and_nobody_waits(definition: str, use: str) -> None:
    check_rewritten(
        rule,
        HEAD + definition.replace("BODY", 'torch.save(1, "x.pt")\n') + use,
        HEAD + definition.replace("BODY", f'{WRITES_MEANWHILE}        torch.save(1, "x.pt")\n') + use,
    )


LOOP = "loader = DataLoader(data)\nfor b in loader:\n    llm(b).loss.backward()\n    save_best(b)\n"
SAVE = 'def save_best(b):\n  torch.save(b, "best.pt")\n'
SAVE_AND_WAIT = f'def save_best(b):\n  {within(WRITES)}          torch.save(b, "best.pt")\n'
SAVE_ALONE = f'def save_best(b):\n  {WRITES_MEANWHILE}      torch.save(b, "best.pt")\n'

# How training reaches `save_best`.
BY_ALL = {
    "by name": LOOP,
    "by name, in functions": f"def train(x):\n{indented(LOOP)}def main():\n    train(1)\nmain()\n",
    "without gradients": f"@torch.no_grad()\ndef keep(b):\n    save_best(b)\n{LOOP.replace('save_best', 'keep')}",
    "under a test of the loss": LOOP.replace("save_best(b)", "if loss < best: save_best(b)"),
    "by a launched function": (
        f"from accelerate import notebook_launcher\ndef train():\n{indented(LOOP)}notebook_launcher(train)\n"
    ),
}
BY_SOME = {
    "also as a value": f"hooks = [save_best]\n{LOOP}",
    "also as an argument": f"register(save_best)\n{LOOP}",
    "under a test of the rank": LOOP.replace("save_best(b)", "if get_rank() == 0: save_best(b)"),
    "under a test of the main process": LOOP.replace("save_best(b)", "a.is_main_process and save_best(b)"),
    "by a method": f"class C:\n    def keep(self, b):\n        save_best(b)\n{LOOP.replace('save_best', 'C().keep')}",
    "by a lambda": f"keep = lambda b: save_best(b)\n{LOOP}",
    "by a function that is registered": f"@on_save\ndef keep(b):\n    save_best(b)\n{LOOP}",
    "after an error": LOOP.replace("    save_best", "    try: step()\n    except Error: save_best"),
}


@pytest.mark.parametrize("train", BY_ALL.values(), ids=BY_ALL)
def test_where_all_ranks_call_a_function_that_writes_they_wait(train: str) -> None:
    check_rewritten(rule, HEAD + SAVE + train, HEAD + SAVE_AND_WAIT + train)


@pytest.mark.parametrize("train", BY_SOME.values(), ids=BY_SOME)
def test_where_one_rank_may_call_a_function_that_writes_none_waits(train: str) -> None:
    check_rewritten(rule, HEAD + SAVE + train, HEAD + SAVE_ALONE + train)


def test_a_function_that_looks_at_the_rank_itself_never_waits() -> None:
    guard = "def save_best(b):\n  if rank != 0:\n    return\n"
    before, after = (code.replace("def save_best(b):\n", guard) for code in (SAVE, SAVE_ALONE))
    check_rewritten(rule, HEAD + before + LOOP, HEAD + after + LOOP)


# A block that writes in a loop, and leaves it: whether a rank would go another way without it.
LEAVING = {
    "break": "if bad(f): break",
    "continue": "if bad(f): continue",
    "break in an else": "for y in x:\n            pass\n        else:\n            break",
}
STAYING = {
    "break of its own loop": "for y in x:\n            break",
    "a return of its own function": "def g():\n            return 1",
}


@pytest.mark.parametrize("inside", LEAVING.values(), ids=LEAVING)
def test_a_block_that_is_left_runs_on_every_rank(inside: str) -> None:
    block = f'    with open("a", "w") as f:\n        {inside}\n'
    loop = "for x in xs:\n"
    check_rewritten(
        rule, HEAD + loop + block + TRAIN, HEAD + loop + f"    {IN_TURN}{indented(block)}" + TRAIN
    )


@pytest.mark.parametrize("inside", STAYING.values(), ids=STAYING)
def test_a_block_that_is_not_left_runs_on_rank_0(inside: str) -> None:
    source = f'for x in xs:\n    with open("a", "w") as f:\n        {inside}\n'
    assert "main_process_only" in apply(rule, HEAD + source + TRAIN).code[1]


def test_a_command_whose_result_leaves_the_loop_runs_on_every_rank() -> None:
    block = '    if os.system("make"):\n        break\n'
    in_turn = "with ddp.in_turn():  # nb2ddp: the ranks run it one after another\n"
    loop = "for x in xs:\n"
    check_rewritten(
        rule, HEAD + loop + block + TRAIN, HEAD + loop + f"    {in_turn}{indented(block)}" + TRAIN
    )


def test_lines_that_are_added_on_every_rank_are_added_once() -> None:
    source = 'for x in xs:\n    with open("a", "a") as f:\n        f.write(x)\n        break\n'
    path = '"a" if ddp.is_main_process else os.devnull, "a"'
    assert path in apply(rule, HEAD + source + TRAIN).code[1]


RETURNED = {
    "what a block returns": '{}with open({}, "w") as f:\n{}    f.write("x")\n{}    return 1\n',
    "what a block makes": '{}with open({}, "w") as f:\n{}    n = f.write("x")\n{}return n\n',
}


@pytest.mark.parametrize("block", RETURNED.values(), ids=RETURNED)
def test_what_a_function_returns_comes_from_every_rank(block: str) -> None:
    nowhere = '"a" if ddp.is_main_process else os.devnull'
    metric = "def metric(p):\n" + "".join(
        f"    {line}\n" for line in block.format("", '"a"', "", "").splitlines()
    )
    train = "t = SFTTrainer(llm, compute_metrics=metric)\nt.train()\n"
    check_rewritten(rule, HEAD + metric + train, HEAD + metric.replace('"a"', nowhere) + train)
    called = metric.replace("metric(p)", "save_best(b)")
    code = apply(rule, HEAD + called + LOOP).code[1]
    assert "    with ddp.in_turn():" in code


def test_a_write_that_a_metric_returns_with_is_noted() -> None:
    metric = 'def metric(p):\n    return torch.save(p, "p.pt") or 1\n'
    (note,) = check_untouched(
        rule, HEAD + metric + "t = SFTTrainer(llm, compute_metrics=metric)\nt.train()\n"
    ).notes
    assert "on every rank" in note.why


def test_a_write_in_a_function_that_is_called_after_training_only_never_waits() -> None:
    result = apply(rule, HEAD + 'def save():\n    torch.save(1, "x.pt")\n' + TRAIN + "save()\n")
    assert "main_process_only" not in result.code[1]


GENERATED = {
    "a call": "llm.generate(**x)\n",
    "its result read": "out = llm.generate(**x)\ntext = tok.decode(out[0])\nprint(text)\n",
    "in a loop": "for q in questions:\n    out = llm.generate(**q)\n    print(out)\n",
    "through a function": "print(ask(q))\n",
    "with vLLM": "out = llm.fast_generate(x)[0].outputs[0].text\nout\n",
}


@pytest.mark.parametrize("source", GENERATED.values(), ids=GENERATED.keys())
def test_one_rank_generates_before_training(source: str) -> None:
    head = HEAD + ("def ask(q):\n    return llm.generate(**q)\n" if "ask" in source else "")
    check_rewritten(rule, head + source + TRAIN, head + GENERATES + deep(source) + TRAIN)


def test_mode_switches_around_generation_run_on_every_rank() -> None:
    head = HEAD + "from unsloth import FastLanguageModel\nFastLanguageModel.for_inference(llm)\n"
    tail = "FastLanguageModel.for_training(llm)\n" + TRAIN
    check_rewritten(
        rule,
        head + "out = llm.generate(**x)\n" + tail,
        head + GENERATES + "        out = llm.generate(**x)\n" + tail,
    )


def test_what_feeds_training_is_generated_once_for_all_ranks() -> None:
    train = "t = SFTTrainer(llm, train_dataset=data)\nt.train()\n"
    check_rewritten(
        rule,
        HEAD + "data = llm.generate(**x)\n" + train,
        HEAD
        + GENERATES
        + "        data = llm.generate(**x)\n"
        + "data = ddp.from_main_process(lambda: data)\n"
        + train,
    )


def test_a_loop_that_trains_on_what_was_generated_needs_all_ranks() -> None:
    head = HEAD + "from torch.utils.data import DataLoader\n"
    loop = "loader = DataLoader(data)\nfor b in loader:\n    llm(b).loss.backward()\n"
    check_rewritten(
        rule,
        head + "data = llm.generate(**x)\n" + loop,
        head
        + GENERATES
        + "        data = llm.generate(**x)\n"
        + "data = ddp.from_main_process(lambda: data)\n"
        + loop,
    )


def test_a_list_that_generation_fills_reaches_all_ranks() -> None:
    loop = "for q in questions:\n    out = llm.generate(q)\n    rows.append(out)\n"
    train = "t = SFTTrainer(llm, train_dataset=Dataset.from_list(rows))\nt.train()\n"
    check_rewritten(
        rule,
        HEAD + "rows = []\n" + loop + train,
        HEAD
        + "rows = []\n"
        + GENERATES
        + deep(loop)
        + "rows = ddp.from_main_process(lambda: rows)\n"
        + train,
    )


def test_what_a_function_reads_is_generated_once_for_all_ranks() -> None:
    function = "def reward():\n    return out\n"
    check_rewritten(
        rule,
        HEAD + "out = llm.generate(**x)\n" + function + TRAIN,
        HEAD
        + GENERATES
        + "        out = llm.generate(**x)\n"
        + "out = ddp.from_main_process(lambda: out)\n"
        + function
        + TRAIN,
    )


def test_between_two_trainings_one_rank_generates_and_writes() -> None:
    second = "d = DPOTrainer(llm)\nd.train()\n"
    check_rewritten(
        rule,
        HEAD + TRAIN + 'llm.generate(**x)\nllm.save_pretrained("mid")\n' + second + "llm.generate(**x)\n",
        HEAD
        + TRAIN
        + GENERATES
        + "        llm.generate(**x)\n"
        + '        llm.save_pretrained("mid")\n'
        + second
        + "llm.generate(**x)\n",
    )


def test_names_of_the_notebook_are_not_taken() -> None:
    result = apply(rule, HEAD + 'is_main = ddp = 1\ntorch.save(x, "x.pt")\n' + TRAIN)
    assert "with ddp_ddp.main_process_only() as ddp_is_main:" in result.code[1]
    assert "    if ddp_is_main:" in result.code[1]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('open("a.csv", "w")', 'open("a.csv" if ddp.is_main_process else os.devnull, "w")'),
        (
            'open(a if b else c, mode="a")',
            'open((a if b else c) if ddp.is_main_process else os.devnull, mode="a")',
        ),
        ('logging.FileHandler("a")', 'logging.FileHandler("a" if ddp.is_main_process else os.devnull)'),
    ],
)
def test_a_file_that_stays_open_is_rank_0s_and_goes_nowhere_on_the_others(before: str, after: str) -> None:
    kept = "file = {}\nclass Log(TrainerCallback):\n    def __init__(self):\n        self.file = {}\n"
    train = "t = SFTTrainer(llm, callbacks=[Log(), file])\nt.train()\n"
    check_rewritten(
        rule, HEAD + kept.format(before, before) + train, HEAD + kept.format(after, after) + train
    )


def test_a_file_that_is_closed_may_be_read_next() -> None:
    source = 'f = open("a", "w")\nf.write("x")\nf.close()\nx = read("a")\n'
    assert "on every rank" in check_untouched(rule, HEAD + source + TRAIN).notes[0].why
    function = "def go():\n" + indented(source) + "go()\n"
    result = apply(rule, HEAD + function + TRAIN)
    assert result.code[1].endswith(indented(source) + IN_TURN + "    go()\n" + TRAIN)


def test_a_function_in_one_line_is_there_on_every_rank() -> None:
    result = apply(
        rule,
        HEAD + 'def keep(x): torch.save(x, "x.pt")\nclass C(TrainerCallback):\n'
        "    def on_save(self, *args, **kwargs):\n        keep(1)\n"
        "t = SFTTrainer(llm, callbacks=[C()])\nt.train()\n",
    )
    expected = "def keep(x):\n    " + WRITES_MEANWHILE + '        torch.save(x, "x.pt")\n'
    assert expected in result.code[1]


def test_only_the_write_behind_a_colon_is_gated() -> None:
    before = 'if loss < best: best = loss; torch.save(x, "x.pt")\n'
    after = "if loss < best:\n    best = loss\n" + indented(WRITES + '        torch.save(x, "x.pt")\n')
    check_rewritten(rule, HEAD + before + TRAIN, HEAD + after + TRAIN)


ASKED = {
    "a version": 'uv = shutil.which("uv")\nr = subprocess.run([uv, "--version"], capture_output=True)\n',
    "a version, in one text": 'r = subprocess.run("python --version", shell=True, capture_output=True)\n',
    "the GPUs": 'r = subprocess.run(["/usr/bin/nvidia-smi", "-L"], capture_output=True)\n',
}
DONE = {
    "a program": 'r = subprocess.run(["make", "all"])\n',
    "a program with an argument of that name": 'r = subprocess.run(["./deploy", "x", "--version"])\n',
    "more than a question": 'r = subprocess.run("nvidia-smi > gpus.txt; make", shell=True)\n',
    "what a name holds": "r = subprocess.run(command)\n",
}


@pytest.mark.parametrize("source", ASKED.values(), ids=ASKED)
def test_a_command_that_only_tells_something_is_not_noted(source: str) -> None:
    assert not check_untouched(rule, f"{HEAD}{source}if r.returncode == 0:\n    print(r)\n{TRAIN}").notes


@pytest.mark.parametrize("source", DONE.values(), ids=DONE)
def test_a_command_that_may_do_something_is_noted(source: str) -> None:
    (note,) = check_untouched(rule, f"{HEAD}{source}if r.returncode == 0:\n    print(r)\n{TRAIN}").notes
    assert "on every rank" in note.why


def test_a_file_that_is_open_around_the_training_is_rank_0s_alone() -> None:
    train = "    t.train()\n    f.write(str(t.state))\n"
    mine = 'with open("log.txt" if ddp.is_main_process else os.devnull, "w") as f:\n'
    head = HEAD + "t = SFTTrainer(llm)\n"
    check_rewritten(rule, head + 'with open("log.txt", "w") as f:\n' + train, head + mine + train)


def test_a_file_that_a_function_opens_around_its_loop_is_rank_0s_alone() -> None:
    loop = "        for b in data:\n            llm(b).loss.backward()\n            f.write('x')\n"
    start = HEAD + "def main():\n    "
    mine = 'with open("log.txt" if ddp.is_main_process else os.devnull, "w") as f:\n'
    check_rewritten(
        rule,
        start + 'with open("log.txt", "w") as f:\n' + loop + "main()\n",
        start + mine + loop + "main()\n",
    )
