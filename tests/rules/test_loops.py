"""A loop written by hand trains through DDP on shares of its batches; all else uses `model` as before."""

from __future__ import annotations

import pytest

from nb2ddp.rules.loops import rule
from tests.support.helpers import apply, check_rewritten, check_untouched

HEAD = (
    "import torch\n"
    "from torch.utils.data import DataLoader\n"
    "from tqdm.auto import tqdm\n"
    "from transformers import AutoModelForCausalLM\n"
    'llm = AutoModelForCausalLM.from_pretrained("m")\n'
)
LOADER = "loader = DataLoader(data, batch_size=8, shuffle=True)\n"
SHARED = "loader = share_batches(DataLoader(data, batch_size=8, shuffle=True))\n"
WRAP = "ddp_model = ddp.wrap(llm)  # nb2ddp: `llm` itself stays as it is\n"
CHECK = "ddp.check_replicas(ddp_model)\n"
SYNC = (
    "ddp_model.require_backward_grad_sync = ((step + 1) % 4 == 0)"
    "  # nb2ddp: as no_sync() does: average only for a step\n"
)

LEFT_ALONE = {
    "evaluation": LOADER + "with torch.no_grad():\n    for batch in loader:\n        llm(**batch)\n",
    "generation over a data set": "for row in data:\n    print(llm.generate(**row))\n",
    "dead training": LOADER + "if False:\n    for batch in loader:\n        llm(**batch).loss.backward()\n",
    "a gradient that is only looked at": "llm(**x).loss.backward()\n",
}

# A loop before, and after; the loader and the model are those above.
LOOPS = {
    "plain": (
        "for batch in loader:\n    loss = llm(**batch).loss\n    loss.backward()\n    opt.step()\n",
        "for batch in loader:\n    loss = ddp_model(**batch).loss\n    loss.backward()\n    opt.step()\n",
    ),
    "without a name for the loss": (
        "for batch in loader:\n  (llm(**batch).loss / 2).backward()\n",
        "for batch in loader:\n  (ddp_model(**batch).loss / 2).backward()\n",
    ),
    "epochs, tqdm, enumerate, accumulation and clipping": (
        "for epoch in range(3):\n"
        '    for step, batch in enumerate(tqdm(loader, desc="train")):  # steps\n'
        "        loss = llm(**batch).loss / 4\n"
        "        loss.backward()\n"
        "        if (step + 1) % 4 == 0:\n"
        "            torch.nn.utils.clip_grad_norm_(llm.parameters(), 1.0)\n"
        "            opt.step()\n",
        "for epoch in range(3):\n"
        '    for step, batch in enumerate(tqdm(loader, desc="train")):  # steps\n'
        f"        {SYNC}"
        "        loss = ddp_model(**batch).loss / 4\n"
        "        loss.backward()\n"
        "        if (step + 1) % 4 == 0:\n"
        "            torch.nn.utils.clip_grad_norm_(llm.parameters(), 1.0)\n"
        "            opt.step()\n",
    ),
    "evaluation inside": (
        "for epoch in range(3):\n"
        "    llm.train()\n"
        "    for batch in loader:\n"
        "        llm(**batch).loss.backward()\n"
        "    llm.eval()\n"
        "    with torch.no_grad():\n"
        "        for batch in test:\n"
        "            llm(**batch)\n"
        "    with torch.inference_mode():\n"
        "        llm(**batch)\n",
        "for epoch in range(3):\n"
        "    llm.train()\n"
        "    for batch in loader:\n"
        "        ddp_model(**batch).loss.backward()\n"
        "    llm.eval()\n"
        "    with torch.no_grad():\n"
        "        for batch in test:\n"
        "            llm(**batch)\n"
        "    with torch.inference_mode():\n"
        "        llm(**batch)\n",
    ),
    "a bar with the loss": (
        "bar = tqdm(loader)\nfor batch in bar:\n    loss = llm(**batch).loss\n    loss.backward()\n"
        "    bar.set_postfix(loss=loss.item())\n",
        "bar = tqdm(loader)\nWRAPfor batch in bar:\n    loss = ddp_model(**batch).loss\n    loss.backward()\n"
        "    bar.set_postfix(loss=mean_over_ranks(loss).item())\n",
    ),
    "a loss that is summed, printed and kept": (
        "for batch in loader:\n    loss = llm(**batch).loss\n    loss.backward()\n    total += loss.item()\n"
        '    print(f"{loss:.3f}")\n    losses.append(loss.detach())\n',
        "for batch in loader:\n    loss = ddp_model(**batch).loss\n    loss.backward()\n"
        "    total += mean_over_ranks(loss).item()\n"
        '    print(f"{mean_over_ranks(loss):.3f}")\n    losses.append(mean_over_ranks(loss).detach())\n',
    ),
    "a loss that the output holds": (
        "for batch in loader:\n    out = llm(**batch)\n    (out.loss / 4).backward()\n"
        "    total += out.loss.item()\n",
        "for batch in loader:\n    out = ddp_model(**batch)\n    (out.loss / 4).backward()\n"
        "    total += mean_over_ranks(out.loss).item()\n",
    ),
    "a loss that the output holds too": (
        "for batch in loader:\n    out = llm(**batch)\n    loss = out.loss\n    loss.backward()\n"
        "    print(out.loss.item(), out.logits.shape)\n",
        "for batch in loader:\n    out = ddp_model(**batch)\n    loss = out.loss\n    loss.backward()\n"
        "    print(mean_over_ranks(out.loss).item(), out.logits.shape)\n",
    ),
    "the last loss of an epoch, and one of an evaluation": (
        "for epoch in range(3):\n"
        "    for batch in loader:\n        loss = llm(**batch).loss\n        loss.backward()\n"
        "    print(epoch, loss.item())\n"
        "    with torch.no_grad():\n"
        "        for batch in test:\n            loss = llm(**batch).loss\n"
        "            total += loss.item()\n",
        "for epoch in range(3):\n"
        "    for batch in loader:\n        loss = ddp_model(**batch).loss\n        loss.backward()\n"
        "    print(epoch, mean_over_ranks(loss).item())\n"
        "    with torch.no_grad():\n"
        "        for batch in test:\n            loss = llm(**batch).loss\n"
        "            total += loss.item()\n",
    ),
    "a loss that is scaled before": (
        "for b in loader:\n    loss = llm(**b).loss\n    loss = loss / 4\n    loss.backward()\n",
        "for b in loader:\n    loss = ddp_model(**b).loss\n    loss = loss / 4\n    loss.backward()\n",
    ),
    "a scaler": (
        'for batch in loader:\n    with torch.autocast("cuda"):\n        loss = llm(**batch).loss\n'
        "    scaler.scale(loss).backward()\n",
        'for batch in loader:\n    with torch.autocast("cuda"):\n        loss = ddp_model(**batch).loss\n'
        "    scaler.scale(loss).backward()\n",
    ),
}

DECLINED = {
    "no DataLoader": ("for row in data:\n    llm(**row).loss.backward()\n", "DataLoader"),
    "batches drawn by hand": (
        LOADER + "it = iter(loader)\nfor step in range(9):\n    llm(**next(it)).loss.backward()\n",
        "DataLoader",
    ),
    "a while loop": (LOADER + "while True:\n    llm(**batch).loss.backward()\n", "DataLoader"),
    "two models": (
        LOADER + 'other = AutoModelForCausalLM.from_pretrained("b")\nfor batch in loader:\n'
        "    loss = llm(**batch).loss + other(**batch).loss\n    loss.backward()\n",
        "which model",
    ),
    "a step in a function that two loops call": (
        LOADER + "def step(batch):\n    llm(**batch).loss.backward()\n"
        "for batch in loader:\n    step(batch)\nfor batch in loader:\n    step(batch)\n",
        "write the step into the loop",
    ),
    "a step in a function that another calls": (
        LOADER + "def step(batch):\n    llm(**batch).loss.backward()\n"
        "def train():\n    for batch in loader:\n        step(batch)\ntrain()\n",
        "write the step into the loop",
    ),
    "a step in a function that is given the model": (
        LOADER + "def step(net, batch):\n    net(**batch).loss.backward()\n"
        "for batch in loader:\n    step(llm, batch)\n",
        "let it use the notebook's model",
    ),
    "no model that can be seen": (
        LOADER + "for batch in loader:\n    step(batch).backward()\n",
        "which model",
    ),
}


@pytest.mark.parametrize("source", LEFT_ALONE.values(), ids=LEFT_ALONE.keys())
def test_what_trains_nothing_is_left_alone(source: str) -> None:
    assert not check_untouched(rule, HEAD + source).declined


@pytest.mark.parametrize(("before", "after"), LOOPS.values(), ids=LOOPS.keys())
def test_a_loop_trains_through_the_wrapper_on_its_share(before: str, after: str) -> None:
    after = after.replace("WRAP", WRAP) if "WRAP" in after else WRAP + after
    check_rewritten(rule, HEAD + LOADER + before, HEAD + SHARED + after + CHECK)


def test_a_model_that_is_deleted_is_not_kept_by_its_wrapper() -> None:
    before = "for batch in loader:\n    llm(**batch).loss.backward()\n"
    freed = "del ddp_model  # nb2ddp: it holds the model too, which is to be freed\ndel llm\n"
    after = before.replace("llm(", "ddp_model(")
    check_rewritten(rule, HEAD + LOADER + before + "del llm\n", HEAD + SHARED + WRAP + after + CHECK + freed)


def test_a_loader_made_in_the_loop_is_shared_there() -> None:
    check_rewritten(
        rule,
        HEAD + "for batch in DataLoader(data, 8):\n    llm(**batch).loss.backward()\n",
        HEAD
        + WRAP
        + "for batch in share_batches(DataLoader(data, 8)):\n    ddp_model(**batch).loss.backward()\n"
        + CHECK,
    )


def test_loader_and_model_are_found_across_cells_under_their_own_names() -> None:
    result = apply(
        rule,
        "import torch.utils.data as tud\nfrom peft import get_peft_model\nfrom transformers import AutoModel",
        'base = AutoModel.from_pretrained("m")',
        "adapted = get_peft_model(base, config)\nadapted.print_trainable_parameters()",
        "batches = tud.DataLoader(\n    rows,\n    batch_size = 4, # small\n)",
        "for b in batches:\n    adapted(**b).loss.backward()",
    )
    assert (
        result.code[4]
        == "batches = share_batches(tud.DataLoader(\n    rows,\n    batch_size = 4, # small\n))"
    )
    assert result.code[5] == (
        "ddp_model = ddp.wrap(adapted)  # nb2ddp: `adapted` itself stays as it is\n"
        "for b in batches:\n    ddp_model(**b).loss.backward()\n" + CHECK.rstrip("\n")
    )


def test_a_module_of_the_notebook_is_a_model() -> None:
    head = (
        "from torch import nn\nfrom torch.utils.data import DataLoader\n"
        "class Net(nn.Module):\n    pass\nllm = Net()\n"
    )
    check_rewritten(
        rule,
        head + LOADER + "for x, y in loader:\n    loss = f(llm(x), y)\n    loss.backward()\n",
        head
        + SHARED
        + WRAP
        + "for x, y in loader:\n    loss = f(ddp_model(x), y)\n    loss.backward()\n"
        + CHECK,
    )


def test_a_frozen_reference_model_is_not_wrapped() -> None:
    reference = 'ref = AutoModelForCausalLM.from_pretrained("m")\n'
    loop = (
        "for batch in loader:\n    with torch.no_grad():\n        target = ref(**batch)\n"
        "    loss = f(llm(**batch), target)\n    loss.backward()\n"
    )
    check_rewritten(
        rule,
        HEAD + LOADER + reference + loop,
        HEAD + SHARED + reference + WRAP + loop.replace("llm(", "ddp_model(") + CHECK,
    )


def test_the_evaluation_loader_is_not_shared() -> None:
    test = "test = DataLoader(held_out, batch_size=8)\n"
    loop = "for batch in loader:\n    llm(**batch).loss.backward()\n"
    end = "with torch.no_grad():\n    for batch in test:\n        llm(**batch)\n"
    check_rewritten(
        rule,
        HEAD + LOADER + test + loop + end,
        HEAD + SHARED + test + WRAP + loop.replace("llm(", "ddp_model(") + CHECK + end,
    )


@pytest.mark.parametrize(("source", "why"), DECLINED.values(), ids=DECLINED.keys())
def test_a_loop_that_cannot_be_followed_is_declined(source: str, why: str) -> None:
    result = check_untouched(rule, HEAD + source)
    [decline] = result.declined
    assert why in decline.why
    assert decline.place is not None


def test_names_of_the_notebook_are_not_taken() -> None:
    result = apply(rule, HEAD + LOADER + "ddp_model = 1\nfor b in loader:\n    llm(**b).loss.backward()\n")
    assert "ddp_ddp_model(**b).loss.backward()" in result.code[1]


def test_a_step_in_a_function_is_followed_from_the_loop_that_calls_it() -> None:
    step = (
        "def step(batch):\n    out = {}(**batch)\n    loss = out.loss\n    loss.backward()\n"
        "    opt.step()\n    return {}.item()\n"
    )
    loop = "for epoch in range(2):\n    for batch in loader:\n        print(step(batch))\n"
    check_rewritten(
        rule,
        HEAD + LOADER + step.format("llm", "loss") + loop,
        HEAD + SHARED + step.format("ddp_model", "mean_over_ranks(loss)") + WRAP + loop + CHECK,
    )


LOSS_FUNCTIONS = {
    "by place": ("def compute(batch, net):\n    return net(**batch).loss\n", "compute(batch, {})"),
    "divided": ("def compute(batch, net):\n    return net(**batch).loss\n", "compute(batch, {}) / 4"),
    "by name": ("def compute(batch, net):\n    return net(**batch).loss\n", "compute(net={}, batch=batch)"),
    "through another": (
        "def inner(net, batch):\n    return net(**batch).loss\ndef compute(batch, net):\n"
        "    return inner(net, batch) / 2\n",
        "compute(batch, {})",
    ),
}


@pytest.mark.parametrize(("functions", "call"), LOSS_FUNCTIONS.values(), ids=LOSS_FUNCTIONS.keys())
def test_a_function_that_computes_the_loss_gets_the_wrapper(functions: str, call: str) -> None:
    loop = "for batch in loader:\n    loss = {}\n    loss.backward()\n"
    check_rewritten(
        rule,
        HEAD + LOADER + functions + loop.format(call.format("llm")),
        HEAD + SHARED + functions + WRAP + loop.format(call.format("ddp_model")) + CHECK,
    )


@pytest.mark.parametrize("use", ["print(net.config)", "print(str(net))", "y = net", "net = other"])
def test_a_function_that_does_more_than_call_the_model_is_not_followed(use: str) -> None:
    function = f"def compute(batch, net):\n    {use}\n    return net(**batch).loss\n"
    loop = "for batch in loader:\n    loss = compute(batch, llm)\n    loss.backward()\n"
    [decline] = check_untouched(rule, HEAD + LOADER + function + loop).declined
    assert "which model" in decline.why


def test_a_count_of_the_batches_is_noted() -> None:
    loop = "for batch in loader:\n    llm(**batch).loss.backward()\n    seen += batch.x.numel()\n"
    result = check_rewritten(
        rule, HEAD + LOADER + loop, HEAD + SHARED + WRAP + loop.replace("llm(", "ddp_model(") + CHECK
    )
    [note] = result.notes
    assert "own share" in note.why


IN_FUNCTION = """\
def train(net, batches, epochs):
    for epoch in range(epochs):
        for batch in batches:
            loss = net(**batch).loss
            loss.backward()
    return net
"""


def test_a_loop_in_a_function_is_followed_through_its_calls() -> None:
    check_rewritten(
        rule,
        HEAD + LOADER + IN_FUNCTION + "train(llm, loader, epochs=2)\n",
        HEAD
        + LOADER
        + """\
def train(net, batches, epochs):
    ddp_model = ddp.wrap(net)  # nb2ddp: `net` itself stays as it is
    for epoch in range(epochs):
        for batch in share_batches(batches):
            loss = ddp_model(**batch).loss
            loss.backward()
    ddp.check_replicas(ddp_model)
    return net
train(llm, loader, epochs=2)
""",
    )


def test_a_function_that_nobody_gives_a_loader_is_declined() -> None:
    assert check_untouched(rule, HEAD + IN_FUNCTION + "train(llm, rows, epochs=2)\n").declined


def test_what_rank_0_writes_is_averaged_before_on_all_ranks() -> None:
    loop = "for batch in loader:\n    loss = llm(**batch).loss\n    loss.backward()\n"
    result = apply(rule, HEAD + LOADER + loop + '    torch.save({"loss": loss}, "c.pt")\n')
    mean = "    loss = mean_over_ranks(loss)  # nb2ddp: of all ranks, for what rank 0 writes\n"
    assert result.code[1].endswith(mean + '    torch.save({"loss": loss}, "c.pt")\n' + CHECK)


def test_gradients_that_another_step_takes_are_averaged_every_time() -> None:
    loop = (
        "for i, batch in enumerate(loader):\n    llm(**batch).loss.backward()\n"
        "    if i % 4 == 3:\n        opt.step()\nopt.step()\n"
    )
    assert "require_backward_grad_sync" not in apply(rule, HEAD + LOADER + loop).code[1]


def test_two_loops_over_one_loader_share_it_once() -> None:
    loop = "for batch in loader:\n    llm(**batch).loss.backward()\n"
    code = apply(rule, HEAD + LOADER + loop + loop).code[1]
    assert code.count("share_batches(") == 1
    assert code.count("ddp.wrap(") == 1
    assert code.count("ddp_model(**batch)") == 2


ACCELERATE = "from accelerate import Accelerator, notebook_launcher\n"


def test_an_accelerate_loop_stays_and_splits_its_batches() -> None:
    before = "accelerator = Accelerator()\nllm, loader = accelerator.prepare(llm, loader)\n"
    after = before.replace(
        "Accelerator()",
        "Accelerator(dataloader_config="
        "DataLoaderConfiguration(split_batches=True, use_seedable_sampler=True))",
    )
    loop = "for batch in loader:\n    loss = llm(**batch).loss\n    accelerator.backward(loss)\n"
    imports = "from accelerate import DataLoaderConfiguration  # nb2ddp: for the batches, see below\n"
    check_rewritten(
        rule,
        HEAD + LOADER + ACCELERATE + before + loop,
        HEAD + LOADER + ACCELERATE + imports + after + loop + "ddp.check_replicas(llm)\n",
    )


@pytest.mark.parametrize(
    ("given", "model", "check"), [("net, ", "net", ""), ("", "llm", "ddp.check_replicas(llm)\n")]
)
def test_an_accelerate_step_in_a_function_stays_too(given: str, model: str, check: str) -> None:
    head = HEAD + LOADER + "from accelerate import Accelerator\na = Accelerator(split_batches=True)\n"
    step = f"def step({given}batch):\n    a.backward({model}(**batch).loss)\n"
    loop = f"for batch in a.prepare(loader):\n    step({given.replace('net', 'llm')}batch)\n"
    check_rewritten(rule, head + step + loop, head + step + loop + check)


def test_an_accelerator_with_settings_of_its_own_keeps_them() -> None:
    assert check_untouched(rule, ACCELERATE + "a = Accelerator(dataloader_config=mine)\n").notes


@pytest.mark.parametrize(
    ("launch", "call"),
    [
        ("notebook_launcher(f, (1, x), num_processes=2)", "f(1, x)"),
        ("notebook_launcher(f, args=())", "f()"),
        ("notebook_launcher(f)", "f()"),
        ("notebook_launcher(f, args=given())", "f(*given())"),
    ],
)
def test_a_notebook_launcher_becomes_a_call(launch: str, call: str) -> None:
    function = "def f(a, b):\n    pass\n"
    check_rewritten(rule, ACCELERATE + function + launch + "\n", ACCELERATE + function + call + "\n")


# A loop over single rows: what stands before and behind the inner loop's body, and what the ranks do.
ROWS = (
    "import random\n"
    "order = list(range(len(rows)))\n"
    "at = 0\n"
    "for step in range(100):\n"
    "    total = 0.0\n"
    "    for i in range(4):\n"
    "        row = rows[order[at]]; at += 1\n"
)
STEP = "    opt.step()\n    print(total)\n"
TURN = (
    "        if not ddp.takes_turn(i, 4, ddp_model):  # nb2ddp: this batch is another rank's\n"
    "            continue\n"
)
TOTAL = "    total = mean_over_ranks(total) * world_size  # nb2ddp: of all ranks' turns\n"
WRAPPED_ROWS = ROWS.replace("for step", WRAP + "for step")
TURNS = {
    "a row": (
        "        loss = llm(**row).loss\n        (loss / 4).backward()\n        total += loss.item()\n",
        TURN + "        loss = ddp_model(**row).loss\n        (loss / 4 * world_size).backward()\n"
        "        total += loss.item()\n" + TOTAL,
    ),
    "nothing to report": (
        "        llm(**row).loss.backward()\n",
        TURN + "        (ddp_model(**row).loss * world_size).backward()\n",
    ),
    "a sum of losses": (
        "        out = llm(**row)\n        (out.a + out.b).backward()\n",
        TURN + "        out = ddp_model(**row)\n        ((out.a + out.b) * world_size).backward()\n",
    ),
    "arguments that draw": (
        "        out = llm(x=torch.rand(8),  # noise\n                  y=row)\n"
        "        out.loss.backward()\n",
        "        inputs = dict(x=torch.rand(8),  # noise\n                  y=row)"
        "  # nb2ddp: every rank draws them, so that all draw the same\n"
        + TURN
        + "        out = ddp_model(**inputs)\n        (out.loss * world_size).backward()\n",
    ),
}
NO_TURNS = {
    "the last loss, read later": "        loss = llm(**row).loss\n        loss.backward()\n"
    + STEP
    + "print(loss)\n",
    "the last loss, read in the next step": (
        "        print(loss)\n        loss = llm(**row).loss\n        loss.backward()\n"
    ),
    "a running mean": (
        "        loss = llm(**row).loss\n        loss.backward()\n        mean = 0.9 * mean + loss.item()\n"
    ),
    "a list of losses": (
        "        loss = llm(**row).loss\n        loss.backward()\n        seen.append(loss.item())\n"
    ),
    "a total over all steps": (
        "        loss = llm(**row).loss\n        loss.backward()\n        at += loss.item()\n"
    ),
    "a place that moves on behind the model": (
        "        loss = llm(**row).loss\n        loss.backward()\n        at = at + 1\n"
    ),
    "arguments without a name that draw": (
        "        loss = llm(torch.rand(8)).loss\n        loss.backward()\n"
    ),
    "a draw behind the model": (
        "        loss = llm(**row).loss\n        loss = loss * random.random()\n        loss.backward()\n"
    ),
    "a draw beside the model": (
        "        loss = llm(x=row).loss * random.random()\n        loss.backward()\n"
    ),
    "a draw in a function around the model": (
        "        loss = noisy(llm(x=row).loss)\n        loss.backward()\n"
    ),
    "a function that notes what it gets": (
        "        loss = llm(**row).loss\n        loss.backward()\n        note(loss)\n"
    ),
    "a total that nothing resets": (
        "        loss = llm(**row).loss\n        loss.backward()\n        grand += loss.item()\n"
    ),
    "a sum that the turns read": (
        "        loss = llm(**row).loss\n        loss.backward()\n        total += loss.item()\n"
        "        print(total)\n"
    ),
    "a row that PyTorch draws": (
        "        row = rows[torch.randint(9, (1,))]\n"
        "        loss = llm(**row).loss\n        loss.backward()\n"
    ),
    "a row that is left out": (
        "        loss = llm(**row).loss\n        if bad(loss): continue\n        loss.backward()\n"
    ),
    "a step for every row": ("        loss = llm(**row).loss\n        loss.backward()\n        opt.step()\n"),
    "a state that is set": (
        "        loss = llm(**row).loss\n        loss.backward()\n        llm.last = loss\n"
    ),
    "a file for every row": (
        "        loss = llm(**row).loss\n        loss.backward()\n        torch.save(loss, 'x')\n"
    ),
    "two calls of the model": ("        loss = llm(**row).loss - llm(**row).loss\n        loss.backward()\n"),
}


@pytest.mark.parametrize(("before", "after"), TURNS.values(), ids=TURNS.keys())
def test_ranks_take_turns_at_the_rows_of_a_step(before: str, after: str) -> None:
    check_rewritten(rule, HEAD + ROWS + before + STEP, HEAD + WRAPPED_ROWS + after + STEP + CHECK)


@pytest.mark.parametrize("body", NO_TURNS.values(), ids=NO_TURNS.keys())
def test_turns_that_need_one_another_are_declined(body: str) -> None:
    functions = "def noisy(x):\n    return x * random.random()\ndef note(x):\n    seen.append(x)\n"
    result = check_untouched(rule, HEAD + functions + ROWS + body + ("" if STEP in body else STEP))
    assert len(result.declined) == 1


@pytest.mark.parametrize(
    "step",
    [
        "    opt.step()\n    if (step + 1) % 3 == 0:\n        scheduler.step()\n",
        "    opt.step()\n    if (step + 1) % 3 == 0: plateau.step(0.1)\n",
        "    torch.nn.utils.clip_grad_norm_(llm.parameters(), 1)\n    if step % 2:\n        opt.step()\n",
    ],
    ids=["a scheduler", "a plateau", "gradients clipped after every batch"],
)
def test_gradients_that_every_batch_needs_are_averaged_every_time(step: str) -> None:
    loop = "for step, batch in enumerate(loader):\n    llm(**batch).loss.backward()\n"
    assert "require_backward_grad_sync" not in apply(rule, HEAD + LOADER + loop + step).code[1]


def test_a_loader_that_a_function_gives_with_others_is_shared() -> None:
    made = (
        "def loaders():\n    train = {}\n    valid = DataLoader(data)\n    return train, valid\n"
        "train_loader, valid_loader = loaders()\n"
    )
    plain = "DataLoader(data, batch_size=8, shuffle=True)"
    check_rewritten(
        rule,
        HEAD + made.format(plain) + "for batch in train_loader:\n    llm(**batch).loss.backward()\n",
        HEAD
        + made.format(f"share_batches({plain})")
        + WRAP
        + "for batch in train_loader:\n    ddp_model(**batch).loss.backward()\n"
        + CHECK,
    )


def test_a_batch_norm_is_noted() -> None:
    loop = "norm = torch.nn.BatchNorm1d(8)\nfor batch in loader:\n    llm(**batch).loss.backward()\n"
    (note,) = apply(rule, HEAD + LOADER + loop).notes
    assert "batch norm" in note.why
