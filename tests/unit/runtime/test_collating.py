"""A Trainer's data collator that draws random numbers or counts: what it makes is one process's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ranks import RankServer
from tests.unit.runtime.conftest import START
from tests.unit.runtime.test_parallelize import distance
from tests.unit.runtime.test_trainers import TOOLS, check_as_in_one_process

COLLATORS = """
from transformers import TrainerCallback
seen, sizes, counts = 0, [], {"rows": 0}
def stacked(rows):
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
def counted(rows):
    global seen
    seen += len(rows)
class Masking:
    def __init__(self):
        self.rng, self.rows, self.masked = np.random.default_rng(3), 0, 0
    def __call__(self, rows):
        batch = stacked(rows)
        mask = torch.from_numpy(self.rng.random(batch["input_ids"].shape) < 0.3)
        batch["input_ids"] = torch.where(mask, 0, batch["input_ids"])
        self.rows += len(rows)
        self.masked += int(mask.sum())
        return batch
class Inherits(Masking):
    def __init__(self):
        super().__init__()
def dropping(rows):
    counted(rows)
    batch = stacked(rows)
    return {**batch, "attention_mask": (torch.rand(batch["input_ids"].shape) < 0.8).long()}
def appending(rows):
    sizes.append(len(rows))
    counts["rows"] += len(rows)
    return stacked(rows)
class Library:  # as DataCollatorForLanguageModeling, which draws what it masks
    mlm = True
    def __call__(self, rows):
        return dropping(rows)
Library.__module__ = "transformers.data.data_collator"
class Flat:  # its rows cannot be told apart, and it takes the labels out of its rows
    def __init__(self):
        self.rows, self.rng = 0, np.random.default_rng(3)
    def __call__(self, rows):
        self.rows += len(rows)
        labels = torch.stack([row.pop("labels") for row in rows])
        return {**stacked(rows), "labels": labels, "offsets": torch.arange(9) + int(self.rng.integers(5))}
class Trains(Trainer):
    seen = []
    def compute_loss(self, model, inputs, **options):
        inputs.pop("offsets", None)
        return super().compute_loss(model, inputs, **options)
class Counts(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kwargs):
        Trains.seen.append([getattr(collator, "rows", seen), getattr(collator, "masked", 0), *sizes, counts["rows"]])
collator = COLLATOR
trainer = Trains(BertForSequenceClassification(config()), arguments(max_steps=-1, num_train_epochs=2,
    eval_strategy="epoch"), train_dataset=examples(ROWS + 5), eval_dataset=examples(7), data_collator=collator,
    callbacks=[Counts()])
train(trainer)
"""


@pytest.mark.parametrize(
    ("collator", "shape", "ranks"),
    [
        ("Masking()", (6, 1), 2),
        ("Masking()", (4, 2), 2),
        ("Masking()", (6, 1), 3),
        ("appending", (6, 1), 2),
        ("Library()", (6, 1), 2),
        ("Flat()", (4, 2), 2),  # each rank has a whole micro-batch
        *(
            pytest.param(*case, marks=pytest.mark.thorough)
            for case in (
                ("Masking()", (8, 2), 4),
                ("Inherits()", (6, 1), 3),
                ("dropping", (4, 2), 2),
                ("Library()", (4, 2), 2),
            )
        ),
    ],
)
def test_a_collator_that_draws_or_counts_does_as_in_one_process(
    server: RankServer, tmp_path: Path, collator: str, shape: tuple[int, int], ranks: int
) -> None:
    program = COLLATORS.replace("COLLATOR", collator).replace("ROWS", "24")
    expected, first = check_as_in_one_process(server, tmp_path, program, ranks, shape, 24)
    assert first["seen"] == expected["seen"]
    assert sum(first["seen"][-1]) > 0


def test_a_collator_whose_rows_cannot_be_told_apart_is_told_of(server: RankServer, tmp_path: Path) -> None:
    program = COLLATORS.replace("COLLATOR", "Flat()").replace("ROWS", "24")
    script = START + f"BATCH, STEPS = 6, 1\n{TOOLS}\n{program}\nfigures(trainer)\n"
    one, several = server.compare(tmp_path, script, 2)
    assert several.codes == [0, 0], several.text
    assert distance(one.notes[0]["log"], several.notes[0]["log"]) < 1e-4
    assert several.ranks[0].err.count("cannot be told apart") == 1
    assert one.notes[0]["seen"] != several.notes[0]["seen"]
