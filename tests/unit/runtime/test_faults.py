"""A rank fails, in each way and phase: every rank ends within a minute, the cause is named, no half file is left.

The ranks are forked; `tests/e2e/test_faults.py` breaks some under torchrun itself.
"""

from __future__ import annotations

import pytest

from tests.support.ranks import Ended, RankServer, collect

SCRIPT = """\
import os, signal, sys, threading, time
import ddp_support as ddp
rank, _, _ = ddp.init(seed=0)
import torch
WHO, FAULT, PHASE = int(os.environ["WHO"]), os.environ["FAULT"], os.environ["PHASE"]
class Weights:
    def __reduce__(self):
        meet_fault(self.phase)
        return (str, ())
def meet_fault(phase):
    if (rank, phase) == (WHO, PHASE):
        open("met", "w").write(str(time.monotonic()))
        if FAULT == "exception":
            raise ValueError("the fault")
        if FAULT == "memory":
            raise MemoryError("the fault")
        if FAULT == "exit":
            sys.exit(0)
        if FAULT == "lock":
            threading.Event().wait()
        os.kill(os.getpid(), signal.SIGKILL if FAULT == "kill" else signal.SIGSTOP)
def save(phase, path):
    weights = Weights()
    weights.phase = phase
    torch.save({"some": torch.ones(100_000), "more": weights}, path)
# ---- cell 2
meet_fault("load")
# ---- cell 3
with ddp.main_process_first():
    meet_fault("preparation")
model = ddp.parallelize(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
# ---- cell 4
for step in range(20):
    meet_fault({0: "first step", 10: "middle"}.get(step))
    loss = model(torch.randn(4, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 15:
# ---- cell 5
        if rank > 0:
            meet_fault("checkpoint")
        with ddp.main_process_only() as is_main:
            if is_main:
                save("checkpoint", "checkpoint.pt")
# ---- cell 6
ddp.check_replicas(model)
if rank > 0:
    meet_fault("final save")
ddp.finish()
save("final save", "final.pt")
note(saved=True)
"""
PHASES = {  # where the other rank waits then
    "load": "(cell 3)",
    "preparation": "(cell 3)",
    "first step": "(cell 4)",
    "middle": "(cell 4)",
    "checkpoint": "(cell ",
    "final save": "",
}
FAULTS = ("exception", "memory", "kill", "stop", "exit", "lock")
# Rank 0 alone is left when it saves: as in one process.
ALONE = {
    ("stop", 0, "final save"),
    ("lock", 0, "final save"),
    ("exit", 0, "final save"),
}
CELLS = [
    cell
    for fault in FAULTS
    for who in (0, 1)
    for phase in PHASES
    if (cell := (fault, who, phase)) not in ALONE
]
IN_CI = {
    ("memory", 0, "preparation"),
    ("exception", 1, "checkpoint"),
    ("kill", 0, "checkpoint"),
    ("kill", 0, "final save"),
    ("stop", 1, "final save"),
    ("exit", 0, "checkpoint"),
    ("lock", 1, "preparation"),
}
Cell = tuple[str, int, str]


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, server: RankServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[Cell, Ended]:
    """Run all selected cells, eight at a time: they mostly wait."""
    wanted = {
        spec.params["cell"]
        for item in request.session.items
        if (spec := getattr(item, "callspec", None)) and "cell" in spec.params and item.path == request.path
    }
    folder = tmp_path_factory.mktemp("faults")
    ended: dict[Cell, Ended] = {}
    cells = [cell for cell in CELLS if cell in wanted]
    for start in range(0, len(cells), 8):
        jobs = {}
        for cell in cells[start : start + 8]:
            fault, who, phase = cell
            environment = {"WHO": str(who), "FAULT": fault, "PHASE": phase, "NB2DDP_PATIENCE": "20"}
            place = folder / "-".join(map(str, cell)).replace(" ", "-")
            jobs[cell] = (place, server.start(place, SCRIPT, 2, environment=environment, limit=100, grace=15))
        ended.update({cell: collect(place, job)[0] for cell, (place, job) in jobs.items()})
    return ended


@pytest.mark.parametrize(
    "cell",
    [
        pytest.param(c, marks=() if c in IN_CI else pytest.mark.thorough, id="-".join(map(str, c)))
        for c in CELLS
    ],
)
def test_a_fault_ends_the_run_with_its_cause(runs: dict[Cell, Ended], cell: Cell) -> None:
    fault, who, phase = cell
    run = runs[cell]
    assert not run.hung, run.text
    assert max(rank.seconds for rank in run.ranks) < 60, run.text
    errors = "".join(rank.err for rank in run.ranks)
    for name, made_by in (("checkpoint.pt", "checkpoint"), ("final.pt", "final save")):
        if (run.folder / name).exists():
            assert (run.folder / name).stat().st_size > 400_000, name
            assert (phase, who) != (made_by, 0), name
    if (fault, who, phase) == ("exit", 1, "final save"):  # it was about to leave, and nothing is lost
        assert run.notes[0]["saved"]
        return
    if (fault, who) == ("exit", 0) and phase in (
        "preparation",
        "checkpoint",
    ):  # rank 0 ends the script for all
        assert run.codes == [0, 0]
        assert max(rank.seconds for rank in run.ranks) < 20
        return
    assert any(run.codes), run.text
    if fault in ("exception", "memory"):
        kind = {"exception": "ValueError", "memory": "MemoryError"}[fault]
        assert errors.count(f"{kind}: the fault") == 1, run.text
        assert run.codes[who] == 1
    elif fault == "kill":
        assert run.codes[who] == -9
    else:
        says = {"exit": "left the script", "stop": "does not answer", "lock": "is at script.py, line"}[fault]
        if phase == "final save":
            says = f"rank {who} has not left the training; it was at"
            assert run.notes[0]["saved"]
        line = next((line for line in errors.splitlines() if f"rank {who} " in line and says in line), "")
        assert line, run.text
        assert PHASES[phase] in line, line
