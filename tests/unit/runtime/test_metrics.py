"""torchmetrics: it computes what one process does, where it would join the ranks' counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.ranks import RankServer
from tests.unit.runtime.conftest import START
from tests.unit.runtime.trainer_tools import TOOLS

pytest.importorskip("torchmetrics")

LOOP = """
import torch
from torchmetrics.classification import MulticlassConfusionMatrix
torch.manual_seed(1)
model = torch.nn.Linear(3, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model = ddp.parallelize(model)
metric = MulticlassConfusionMatrix(num_classes=4)
x, y = torch.randn(22, 3), torch.arange(22) % 4
seen = []
for epoch in range(2):
    metric.reset()
    for part in range(0, 22, 6):
        logits = model(x[part:part + 6])
        torch.nn.functional.cross_entropy(logits, y[part:part + 6]).backward()
        optimizer.step()
        optimizer.zero_grad()
        metric.update(logits, y[part:part + 6])
    seen.append(metric.compute().tolist())
    metric.reset()
    with torch.no_grad():
        metric.update(model(x), y)
    seen.append(metric.compute().tolist())
note(seen=seen, last=metric(logits.detach(), y[-4:]).tolist())
"""

EVALUATION = """
import torchmetrics
seen = []
def compute_metrics(predictions):
    hits = torchmetrics.SumMetric()
    hits.update(float((predictions.predictions.argmax(-1) == predictions.label_ids).sum()))
    rows = torchmetrics.SumMetric()
    rows.update(len(predictions.label_ids))
    seen.append([hits.compute().item(), rows.compute().item()])
    return {"hits": seen[-1][0]}
class Counting(Trainer):
    def compute_loss(self, model, inputs, *args, **kwargs):
        self.rows.update(len(inputs["labels"]))
        return super().compute_loss(model, inputs, *args, **kwargs)
t = Counting(bert(), args(max_steps=3), train_dataset=cls_rows(40), eval_dataset=cls_rows(7),
    compute_metrics=compute_metrics)
t.rows = torchmetrics.SumMetric()
go(t)
trained = t.rows.compute().item()
t.evaluate()
note(seen=seen, trained=trained)
"""


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.thorough)])
def test_a_loop_counts_as_one_process(server: RankServer, tmp_path: Path, ranks: int) -> None:
    one, several = server.compare(tmp_path, START + LOOP, ranks)
    assert not any((*one.codes, *several.codes)), several.text
    assert several.notes == one.notes * ranks
    assert sum(map(sum, one.notes[0]["seen"][0])) == 22


def test_an_evaluation_and_a_loss_of_a_trainer_count_as_one_process(
    server: RankServer, tmp_path: Path
) -> None:
    one, several = server.compare(tmp_path, START + TOOLS + EVALUATION)
    assert not any((*one.codes, *several.codes)), several.text
    for notes in several.notes:
        assert [notes[name] for name in ("seen", "trained")] == [
            one.notes[0][name] for name in ("seen", "trained")
        ]
    assert one.notes[0]["seen"][0][1] == 7
    assert one.notes[0]["trained"] == 24
