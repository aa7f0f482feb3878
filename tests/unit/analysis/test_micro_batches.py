"""What a Trainer's micro-batch does outside the run, and reads of those before it."""

from __future__ import annotations

import pytest

from nb2ddp.analysis import micro_batches
from nb2ddp.analysis.common_paths import changes_state
from nb2ddp.analysis.micro_batches import earlier_reads
from nb2ddp.source import cst_nodes
from tests.support.helpers import facts_of
from tests.support.programs import Program, programs

START = """import csv, logging, wandb
from torch.utils.tensorboard import SummaryWriter
from transformers import Trainer
logging.basicConfig(filename="run.log")
log = logging.getLogger("run")
writer = SummaryWriter("runs")
run = wandb.init()
file = open("a.csv", "w")
table = csv.writer(file)
seen = []
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        {line}
        return loss
t = Mine(llm)
t.train()
"""


@pytest.mark.parametrize(
    "line",
    [
        "log.info(loss.item())",
        "writer.add_scalar('loss', loss.item())",
        "run.log({'loss': loss.item()})",
        "wandb.log({'loss': loss.item()})",
        "file.write(str(loss))",
        "table.writerow([loss.item()])",
        "print(loss.item(), file=file)",
    ],
)
def test_what_reaches_outside_is_found(line: str) -> None:
    found = micro_batches.effects(facts_of(START.format(line=line)))
    assert [cst_nodes.code_of(call) for call in found] == [line]


@pytest.mark.parametrize(
    "line",
    [
        "seen.append(loss.item())",
        "print(loss.item())",
        "self.log({'loss': loss.item()})",
        "model.zero_grad()",
    ],
)
def test_what_stays_inside_is_not(line: str) -> None:
    assert not micro_batches.effects(facts_of(START.format(line=line)))


@pytest.mark.parametrize("program", programs(__file__, "micro_batches"), ids=str)
def test_what_is_read_of_earlier_micro_batches(program: Program) -> None:
    found = [what.strip("`") for _, what in earlier_reads(facts_of(*program.cells))]
    assert (found or ["nothing"]) == list(program.answers)


REWARDS = """
from trl import GRPOTrainer
seen = []
def plain(completions): return [len(c) for c in completions]
def keeps(completions): seen.append(completions)
class Counts:
    def __init__(self): self.n = 0
    def __call__(self, completions): self.n = self.n + 1
class Tallies:
    def __init__(self): self.seen = {{}}
    def __call__(self, completions): self.seen[completions[0]] = len(self.seen)
counts, several = Counts(), [plain, keeps]
trainer = GRPOTrainer(llm, reward_funcs={given})
"""


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ("plain", []),
        ("keeps", ["keeps"]),
        ("[plain, keeps, counts]", ["keeps", "__call__"]),
        ("[Counts()]", ["__call__"]),
        ("[Tallies()]", ["__call__"]),
        ("several", ["keeps"]),
        ("'a model'", []),
    ],
)
def test_rewards_that_remember(given: str, names: list[str]) -> None:
    facts = facts_of(REWARDS.format(given=given))
    (trainer,) = [call for call in facts.calls if facts.keyword(call, "reward_funcs")]
    found = micro_batches.rewards(facts, trainer)
    assert [function.name.value for function in found if changes_state(facts, function.body)] == names
