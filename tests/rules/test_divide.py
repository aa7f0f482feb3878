"""A loop is divided where its iterations need nothing of one another, and only there."""

from __future__ import annotations

from textwrap import indent

import pytest

from nb2ddp.rules.divide import rule
from tests.support.helpers import apply, check_settles, check_untouched, converted

HEAD = (
    "import json, random\nfrom pathlib import Path\nimport torch\nfrom tqdm import tqdm\n"
    "from datasets import load_dataset\n"
    "from transformers import AutoModelForCausalLM, AutoTokenizer, pipeline\n"
    "from trl import SFTConfig, SFTTrainer\n"
    "llm = AutoModelForCausalLM.from_pretrained('m')\n"
    "tok = AutoTokenizer.from_pretrained('m')\n"
    "questions = ['a', 'b', 'c']\n"
    "data = load_dataset('d', split='train')\n"
)
TRAIN = "t = SFTTrainer(llm, args=SFTConfig('o'), train_dataset=answers)\nt.train()\n"
DIVIDED = "  # nb2ddp: divided over the ranks"
BODY = "out = llm.generate(q, do_sample=False)\nanswers.append(out)\n"


def loop(body: str = BODY, over: str = "q in questions", before: str = "answers = []\n") -> str:
    return f"{before}for {over}:\n{indent(body, '    ')}"


def divided(body: str = BODY, over: str = "q in questions", before: str = "answers = []\n") -> str:
    target, _, items = over.partition(" in ")
    return loop(body, f"{target} in ddp.share_loop({items}, answers)", before).replace(
        ":\n", f":{DIVIDED}\n", 1
    )


# What a loop goes through.
ITEMS = {
    "a list": "q in questions",
    "a part of it": "q in questions[:2]",
    "a literal": "q in ['a', 'b']",
    "numbers": "q in range(4)",
    "batch after batch": "n in range(0, len(questions), 2)",
    "numbered": "i, q in enumerate(questions)",
    "with a bar": "i, q in enumerate(tqdm(questions, desc='x'))",
    "a bar of numbers": "q in tqdm(range(3))",
    "two lists": "q, r in zip(questions, sorted(set(questions)))",
    "a dataset": "q in data",
    "a column": "q in data.select(range(9))['question']",
    "a comprehension": "q in [x.upper() for x in questions]",
    "a file of lists": "q in json.loads(Path('q.json').read_text())",
}
BODIES = {
    "a condition": "if not q:\n    continue\n" + BODY,
    "several for an item": "for n in range(2):\n    " + BODY.replace("\n", "\n    ").rstrip(" "),
    "many at once": "answers.extend(llm.generate(q, do_sample=False))\n",
    "a list of its own": "chat = []\nchat.append({'role': 'user', 'content': q})\n" + BODY,
    "a string that grows": "text = ''\ntext += q\n" + BODY,
    "its own names again": "x = tok(q)\nx = x.to('cuda')\ndel x\n" + BODY,
    "a scored answer": "with torch.no_grad():\n    answers.append(llm(q).logits.argmax())\n",
    "a retry": "out = 0\nwhile not out:\n    out = llm.generate(q, do_sample=False)\nanswers.append(out)\n",
    "a retry that ends": "for n in range(2):\n    if n:\n        break\n" + BODY,
    "a comprehension": "out = [x.strip() for x in tok.batch_decode(llm.generate(q, do_sample=False))]\n"
    "answers.extend(sorted(out, key=lambda x: len(x)))\n",
    "memory given back": BODY + "torch.cuda.empty_cache()\n",
}

# What lets one iteration know of another, or outlives it.
NOT_DIVIDED = {
    "no list to fill": loop("print(llm.generate(q))\n"),
    "a list that is not empty": loop(before="answers = ['x']\n"),
    "a list that is used before": loop(before="answers = []\nother = answers\n"),
    "a list with two names": loop(before="answers = other = []\n"),
    "the length so far": loop(BODY + "print(len(answers))\n"),
    "a counter": loop("n += 1\n" + BODY, before="n = 0\nanswers = []\n"),
    "a history": loop(
        "chat.append(q)\nanswers.append(llm.generate(chat))\n",
        before="chat = [1]\nanswers = []\n",
    ),
    "the answer before": loop(
        "last = llm.generate(last)\nanswers.append(last)\n", before="last = 0\nanswers = []\n"
    ),
    "a name set for some": loop("if q:\n    x = q\nanswers.append(llm.generate(x))\n"),
    "the last item read later": loop() + "print(out)\n",
    "the last item read in a function": loop() + "def show():\n    return out\n",
    "a break": loop(BODY + "if not out:\n    break\n"),
    "an end of its own": loop() + "else:\n    print('done')\n",
    "a dict": loop("found[q] = llm.generate(q)\nanswers.append(q)\n", before="found = {}\nanswers = []\n"),
    "the items themselves": loop(
        "row['x'] = llm.generate(row)\nanswers.append(row)\n", over="row in [{}, {}]"
    ),
    "a part of something": loop("table[0][1] = q\n" + BODY, before="table = [[0, 0]]\nanswers = []\n"),
    "an attribute": loop("llm.last = q\n" + BODY),
    "an open file": loop("f.write(q)\n" + BODY, before="f = open('a')\nanswers = []\n"),
    "data made on the way": loop(over="q in load_dataset('d')['train']"),
    "a file": loop("torch.save(q, 'x.pt')\n" + BODY),
    "a call for its effect": loop("metric.add_batch(q)\n" + BODY),
    "an iterator": loop("x = next(stream)\n" + BODY),
    "random numbers": loop("x = random.choice(questions)\n" + BODY),
    "a seed": loop("torch.manual_seed(q)\n" + BODY),
    "vLLM": loop("answers.append(llm.fast_generate(q))\n"),
    "gradients": loop("answers.append(llm(q).logits)\n"),
    "training": loop("llm(q).loss.backward()\nanswers.append(llm.generate(q))\n"),
    "a set, whose order differs": loop(over="q in set(questions)"),
    "something unknown": loop(over="q in things()"),
    "a loader": loop(over="q in torch.utils.data.DataLoader(questions, shuffle=True)"),
    "under a condition": "answers = []\nif questions:\n" + indent(loop(before=""), "    "),
    "in another loop": "for epoch in range(2):\n" + indent(loop(), "    "),
    "a function that counts": "def ask(q):\n    global n\n    n += 1\n    return llm.generate(q)\n"
    + loop("answers.append(ask(q))\n"),
    "a function that keeps": "seen = []\ndef ask(q):\n    seen.append(q)\n    return llm.generate(q)\n"
    + loop("answers.append(ask(q))\n"),
    "a function with a cache": "@cached\ndef ask(q):\n    return llm.generate(q)\n"
    + loop("answers.append(ask(q))\n"),
    "an object that remembers": (
        "class Agent:\n    def generate(self, q):\n        self.n = q\n        return q\nllm = Agent()\n"
        + loop()
    ),
    "a function that sees how much is done": "def done():\n    return len(answers)\n"
    + loop("print(done())\n" + BODY),
    "a lambda that keeps": loop(
        "x = keep(q)\n" + BODY, before="keep = lambda x: questions.pop()\nanswers = []\n"
    ),
    "a function by another name": "def ask(q):\n    questions.sort()\n    return q\nother = ask\n"
    + loop("q = other(q)\n" + BODY),
    "a partial": "from functools import partial\nask = partial(print, end='')\n"
    + loop("x = ask(q)\n" + BODY),
    "a callback": "def stop(*x):\n    questions.sort()\n"
    + loop("answers.append(llm.generate(q, stopping_criteria=[stop]))\n"),
    "a property": (
        "class State:\n    @property\n    def next(self):\n        self.n += 1\nstate = State()\n"
        + loop("x = state.next\n" + BODY)
    ),
    "an object that nobody knows": "agent = Agent()\n" + loop("x = agent.ask(q)\n" + BODY),
    "a cache of keys": loop("answers.append(llm.generate(q, past_key_values=cache))\n"),
    "ranks of its own": "import os\nquestions = questions[int(os.environ.get('RANK', 0)) :: 2]\n" + loop(),
    "a shell line": loop("get_ipython().system('ls')\n" + BODY),
}


@pytest.mark.parametrize("source", NOT_DIVIDED.values(), ids=NOT_DIVIDED.keys())
def test_what_is_not_sure_to_be_independent_stays(source: str) -> None:
    check_untouched(rule, HEAD + source + TRAIN)


def test_after_training_rank_0_is_alone() -> None:
    check_untouched(rule, HEAD + "answers = 1\n" + TRAIN + loop())


def test_a_notebook_that_does_not_train_is_left_alone() -> None:
    check_untouched(rule, HEAD + loop())


@pytest.mark.parametrize("over", ITEMS.values(), ids=ITEMS.keys())
def test_each_rank_takes_its_share_of_the_items(over: str) -> None:
    result = check_settles(rule, HEAD + loop(over=over) + TRAIN, HEAD + divided(over=over) + TRAIN)
    assert not result.notes


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_what_an_iteration_does_for_itself_may_stay(body: str) -> None:
    check_settles(rule, HEAD + loop(body) + TRAIN, HEAD + divided(body) + TRAIN)


def test_several_lists_are_gathered() -> None:
    body = BODY + "prompts.append(q)\n"
    before = "answers, prompts = [], []\n"
    after = divided(body, before=before).replace("answers):", "answers, prompts):")
    check_settles(rule, HEAD + loop(body, before=before) + TRAIN, HEAD + after + TRAIN)


def test_a_loop_without_gradients() -> None:
    body = "answers.append(llm(q).logits.argmax())\n"
    wrap = "answers = []\nwith torch.no_grad():\n{}"
    before, after = indent(loop(body, before=""), "    "), indent(divided(body, before=""), "    ")
    check_settles(rule, HEAD + wrap.format(before) + TRAIN, HEAD + wrap.format(after) + TRAIN)


def test_a_pipeline_scores() -> None:
    head = HEAD + "pipe = pipeline('text-classification', model=llm)\n"
    body = "answers.append(pipe(q)[0])\n"
    check_settles(rule, head + loop(body) + TRAIN, head + divided(body) + TRAIN)


def test_a_function_that_generates_and_keeps_nothing() -> None:
    head = HEAD + "def ask(q):\n    x = []\n    x.append(q)\n    return llm.generate(x, do_sample=False)\n"
    body = "answers.append(ask(q))\n"
    check_settles(rule, head + loop(body) + TRAIN, head + divided(body) + TRAIN)


FUNCTION = "def collect(items):\n{}    return answers\n"


def test_a_loop_in_a_function_that_a_cell_calls() -> None:
    over = "q in items"
    before = FUNCTION.format(indent(loop(over=over), "    "))
    after = FUNCTION.format(indent(divided(over=over), "    "))
    call = "answers = collect(questions)\n"
    check_settles(rule, HEAD + before + call + TRAIN, HEAD + after + call + TRAIN)


@pytest.mark.parametrize(
    "call",
    [
        "answers = collect(set(questions))\n",
        "if questions:\n    answers = collect(questions)\n",
        "keep = collect\nanswers = collect(questions)\n",
        "def again():\n    return collect(questions)\nanswers = again()\n",
        "json.dump(collect(questions), open('a.json', 'w'))\nanswers = 1\n",
    ],
    ids=["a set", "under a condition", "another name", "from a function", "written by one rank"],
)
def test_a_function_that_is_called_otherwise_stays(call: str) -> None:
    function = FUNCTION.format(indent(loop(over="q in items"), "    "))
    check_untouched(rule, HEAD + function + call + TRAIN)


def test_a_name_that_gets_another_value_before_it_is_read_is_free() -> None:
    later = "out = 1\nprint(out, [q for q in questions])\nfor q in questions:\n    print(q)\n"
    check_settles(rule, HEAD + loop() + later + TRAIN, HEAD + divided() + later + TRAIN)


def test_sampling_and_printing_are_noted() -> None:
    body = "out = llm.generate(q)\nprint(out)\nanswers.append(out)\n"
    sampling, printing = apply(rule, HEAD + loop(body) + TRAIN).notes
    assert "do_sample=False" in sampling.why
    assert "rank 0's share" in printing.why


def test_a_divided_loop_is_for_all_ranks_in_the_whole_script() -> None:
    script = converted(HEAD, loop(), TRAIN).files["train_ddp.py"]
    assert "one rank generates" not in script
    assert "from_main_process" not in script
    assert "ddp.share_loop(" in script


def test_what_rank_0_generated_reaches_a_divided_loop() -> None:
    source = "questions = llm.generate(5).split()\n"
    script = converted(HEAD, source, loop(), TRAIN).files["train_ddp.py"]
    at = script.index("questions = ddp.from_main_process(lambda: questions)")
    assert at < script.index("ddp.share_loop(questions, answers)")


def test_a_program_that_makes_training_data_batch_by_batch() -> None:
    program = """\
def make(llm, items, size):
    rows = []
    for start in ITEMS:NOTE
        batch = items[start : start + size]
        inputs = tok(batch, return_tensors="pt").to("cuda")
        with torch.no_grad():
            out = llm.generate(**inputs, num_return_sequences=25, do_sample=True)
        for n, text in enumerate(tok.batch_decode(out)):
            if text.strip():
                rows.append({"question": batch[n // 25], "text": text})
    return rows
answers = make(llm, questions, size=2)
"""
    before = program.replace("ITEMS", "range(0, len(items), size)").replace("NOTE", "")
    after = program.replace("ITEMS", "ddp.share_loop(range(0, len(items), size), rows)").replace(
        "NOTE", DIVIDED
    )
    (note,) = check_settles(rule, HEAD + before + TRAIN, HEAD + after + TRAIN).notes
    assert "samples" in note.why
