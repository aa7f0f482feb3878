"""A Trainer of Lightning's on several ranks: who writes, who waits, what is divided, and what ends the run."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nb2ddp.runtime import support_module, used_names
from tests.support.ranks import Ended, RankServer
from tests.unit.runtime.conftest import RANK_COUNTS, START

TOOLS = """
import os, pathlib
import lightning as L, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(4)
class Net(L.LightningModule):
    def __init__(self, width=8):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, 16), nn.Tanh(), nn.Linear(16, width))
        self.losses = []
    def forward(self, x):
        return self.net(x)
    def training_step(self, batch, i):
        loss = (self(batch[0]) - batch[0].roll(1, 1)).pow(2).mean()
        self.losses.append(loss.item())
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
def rows(count=48, width=8, size=12):
    return DataLoader(TensorDataset(torch.randn(count, width)), batch_size=size, shuffle=True)
def trainer(make=L.Trainer, **options):
    plain = dict(max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                 enable_model_summary=False)
    return ddp.lightning_trainer(make)(**{**plain, **options})
def end(module, **more):
    ddp.check_replicas()
    note(losses=module.losses, parameters=[p.detach() for p in module.parameters()], **more)
"""


# Half a minute to import Lightning; three notebooks of tests/e2e/test_lightning.py are in `make test`.
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def lightning() -> Iterator[RankServer]:
    pytest.importorskip("lightning")
    server = RankServer(("accelerate", "numpy", "lightning.pytorch"))
    yield server
    server.close()


@pytest.fixture
def run(lightning: RankServer, tmp_path: Path) -> Callable[..., Ended]:
    """Run a program in one process and on ranks; return the latter when the figures are the same."""

    def as_one(program: str, ranks: int = 2) -> Ended:
        one, several = lightning.compare(tmp_path, START + TOOLS + program, ranks, limit=100)
        assert (one.codes, set(several.codes)) == ([0], {0}), one.text + several.text
        expected, first = one.notes[0], several.notes[0]
        for other in several.notes:
            assert other["parameters"] == first["parameters"], "the ranks are not bit-equal"
        assert expected.keys() == first.keys()
        for name in expected:
            near = [pytest.approx(row, rel=1e-5, abs=1e-5) for row in _rows(expected[name])]
            assert _rows(first[name]) == near, name
        return several

    return as_one


def _rows(value: object) -> list[object]:
    """The innermost lists of numbers."""
    if isinstance(value, list) and any(isinstance(item, list) for item in value):
        return [row for item in value for row in _rows(item)]
    return [value]


@pytest.fixture
def fail(lightning: RankServer, tmp_path: Path) -> Callable[..., Ended]:
    def run_and_fail(program: str, ranks: int = 2, **options: Any) -> Ended:
        ended = lightning.run(tmp_path, START + TOOLS + program, ranks, limit=100, **options)
        assert not ended.hung, ended.text
        assert all(ended.codes), ended.text
        return ended

    return run_and_fail


def test_devices_and_strategies_of_one_process_are_this_rank_alone(run: Callable[..., Ended]) -> None:
    several = run(
        """
from lightning.pytorch.strategies import DDPStrategy
losses = []
for options in ({"devices": "auto"}, {"devices": [0], "accelerator": "auto"},
                {"devices": 1, "strategy": "ddp_notebook"},
                {"strategy": DDPStrategy(find_unused_parameters=True), "devices": -1}):
    net = Net()
    if world_size == 1:
        options = {}
    made = trainer(max_epochs=1, **options)
    made.fit(net, rows())
    losses.append(net.losses)
class Mine(L.Trainer):
    def __init__(self, epochs, **options):
        super().__init__(max_epochs=epochs, logger=False, enable_checkpointing=False, **options)
net = Net()
ddp.lightning_trainer(Mine)(1, strategy="ddp" if world_size > 1 else "auto").fit(net, rows())
losses.append(net.losses)
assert made.is_global_zero == (rank == 0)
alone = [made.world_size, made.num_devices, made.global_rank]
end(net, all=losses, alone=alone)
"""
    )
    assert "a check failed" not in several.text


def test_rows_that_depend_on_one_another_later_are_found_and_said(run: Callable[..., Ended]) -> None:
    several = run(
        """
class Mixing(Net):
    weight = 0.0
    def forward(self, x):
        z = self.net(x)
        return z - self.weight * z.mean(0)
    def on_train_epoch_start(self):
        self.weight = 0.5 * (self.current_epoch > 0)
net = Mixing()
trainer(max_epochs=3).fit(net, rows())
end(net)
"""
    )
    assert "time: rows depend on one another" in several.ranks[0].err


def test_a_loss_over_the_batch_in_forward_is_computed_whole(run: Callable[..., Ended]) -> None:
    several = run(
        """
class Contrastive(Net):
    def forward(self, x):
        z = nn.functional.normalize(self.net(x), dim=1)
        return nn.functional.cross_entropy(z @ z.T / 0.1, torch.arange(len(x)).roll(1))
    def training_step(self, batch, i):
        loss = self(batch[0])
        self.losses.append(loss.item())
        return loss
net = Contrastive()
trainer().fit(net, rows())
end(net)
"""
    )
    assert "every rank computes whole batches, which saves no time" in several.ranks[0].err


def test_what_forward_logs_is_of_whole_batches(run: Callable[..., Ended]) -> None:
    several = run(
        """
class Logs(Net):
    def forward(self, x):
        z = self.net(x)
        self.log("size", z.square().mean(), on_step=False, on_epoch=True)
        return z
net = Logs()
made = trainer()
made.fit(net, rows())
end(net, size=made.callback_metrics["size"].item())
"""
    )
    assert "every rank computes whole batches, which saves no time: forward() logs a figure" in several.text
    assert "a check failed" not in several.text


def test_a_validation_that_takes_its_time_is_divided(run: Callable[..., Ended]) -> None:
    """Lightning validates in inference mode."""
    several = run(
        """
class Large(Net):
    def __init__(self):
        super().__init__(256)
        width = 512
        self.net = nn.Sequential(nn.Linear(256, width), nn.ReLU(), nn.Linear(width, width), nn.Linear(width, 256))
        self.seen, self.figures = [], []
        self.net[0].register_forward_hook(see)
    def validation_step(self, batch, i):
        self.figures.append(self(batch[0]).pow(2).mean().item())
    def predict_step(self, batch, i):
        return self(batch[0])
sizes = set()
def see(part, args, output):
    sizes.add(len(output))
see.__module__ = "torch.tests"  # one of the notebook's own would be given whole batches
net = Large()
made = trainer(max_epochs=2)
made.fit(net, rows(600, 256, 600), rows(600, 256, 600))
predicted = torch.cat(made.predict(net, DataLoader(TensorDataset(torch.ones(600, 256)), batch_size=600)))
sizes.clear()
made.validate(net, rows(600, 256, 600), verbose=False)
if world_size > 1:
    assert max(sizes) == 300, sizes
ddp.check_replicas()
note(losses=net.losses, parameters=[p.norm().item() for p in net.parameters()], figures=net.figures,
     predicted=predicted.norm().item())
"""
    )
    assert "a check failed" not in several.text


@pytest.mark.parametrize("ranks", RANK_COUNTS)
def test_what_rank_0_does_alone_no_rank_waits_for_in_vain(run: Callable[..., Ended], ranks: int) -> None:
    """It calls the model, and draws numbers."""
    run(
        """
from lightning.pytorch.utilities import rank_zero_only
seen = []
class Shows(Net):
    @ddp.rank_zero_only
    def on_train_epoch_end(self):
        seen.append(self(torch.randn(6, 8)).norm().item())
        self.trainer.save_checkpoint("of_rank_0.ckpt")
net = Shows()
made = trainer(max_epochs=3)
made.fit(net, rows())
end(net, seen=seen if rank == 0 else None, drawn=torch.rand(1).item())
""",
        ranks,
    )


def test_data_are_prepared_by_rank_0_first(run: Callable[..., Ended]) -> None:
    several = run(
        """
class Data(L.LightningDataModule):
    def prepare_data(self):
        self.make("first")
    def setup(self, stage):
        self.make("second")
        self.trainer.strategy.barrier()
    def make(self, name):
        if not os.path.exists(name):
            os.mkdir(name)  # the second rank would fail
            import time; time.sleep(0.5)
            pathlib.Path(name, "rows").touch()
        assert os.path.exists(f"{name}/rows")
    def train_dataloader(self):
        return rows()
net = Net()
trainer().fit(net, datamodule=Data())
end(net)
""",
        ranks=3,
    )
    assert "a check failed" not in several.text


def test_rank_0_alone_writes_and_all_know_where(run: Callable[..., Ended]) -> None:
    several = run(
        """
class Logs(Net):
    def training_step(self, batch, i):
        loss = super().training_step(batch, i)
        self.log("loss", loss)
        return loss
from lightning.pytorch.loggers import CSVLogger
for run in range(2):
    net = Logs()
    made = trainer(logger=[CSVLogger("."), CSVLogger("others")], enable_checkpointing=True, log_every_n_steps=1)
    made.fit(net, rows())
    made.save_checkpoint("last.ckpt")
    assert torch.load("last.ckpt", weights_only=False)["global_step"] == 8
    assert os.path.exists(made.checkpoint_callback.best_model_path)
    lines = pathlib.Path(made.loggers[1].log_dir, "metrics.csv").read_text().splitlines()
end(net, versions=len(os.listdir("others/lightning_logs")), version=made.logger.version, lines=len(lines))
""",
        ranks=3,
    )
    assert [rank.out.count("nb2ddp") > 0 for rank in several.ranks] == [True, False, False]


def test_all_ranks_stop_and_save_when_rank_0_does(run: Callable[..., Ended]) -> None:
    """A clock, or what a rank alone has seen, may say otherwise on another rank."""
    run(
        """
from datetime import timedelta
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, Timer
class Own(Net):
    def on_train_epoch_end(self):
        self.log("own", float(self.current_epoch) * (1 if rank == 0 else -1))
nets = []
for callbacks in ([EarlyStopping("own", patience=1)], [Timer(timedelta(seconds=0 if rank == 0 else 3600))],
                  [ModelCheckpoint("kept", monitor="own", mode="max", filename="{epoch}")]):
    nets.append(Own())
    made = trainer(max_epochs=4, callbacks=callbacks, enable_checkpointing=True)
    made.fit(nets[-1], rows())
ddp.check_replicas()
note(losses=[len(net.losses) for net in nets], parameters=[p.detach() for net in nets for p in net.parameters()],
     kept=[int(name[6]) for name in os.listdir("kept")])
"""
    )


def test_an_optimizer_steps_with_what_its_closure_has_left_to_exchange(run: Callable[..., Ended]) -> None:
    """An epoch ends in the middle of an accumulation, and a parameter is used outside of all modules."""
    several = run(
        """
class Scaled(Net):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
    def forward(self, x):
        return self.net(x) * 1.0
    def training_step(self, batch, i):
        loss = (self.net(batch[0]) * self.scale - batch[0]).pow(2).mean()
        self.losses.append(loss.item())
        return loss + rank * 1e-6 * self.scale  # as GPUs round
net = Scaled()
trainer(max_epochs=4, accumulate_grad_batches=3).fit(net, rows(56))
end(net)
"""
    )
    assert "a check failed" not in several.text


def test_an_error_of_one_rank_ends_all(fail: Callable[..., Ended]) -> None:
    ended = fail(
        """
class Fails(Net):
    def training_step(self, batch, i):
        if rank == 1 and self.global_step == 6:  # the others wait for its rows
            raise RuntimeError("of one rank")
        return super().training_step(batch, i)
from lightning.pytorch.callbacks import OnExceptionCheckpoint
trainer(callbacks=[OnExceptionCheckpoint("failed")], enable_checkpointing=True).fit(Fails(), rows())
""",
        environment={"NB2DDP_CHECKS": "off"},
    )
    assert "RuntimeError: of one rank" in ended.ranks[1].err
    assert "rank 1 raised RuntimeError" in ended.ranks[0].err


def test_an_error_while_rank_0_sets_up_ends_all(fail: Callable[..., Ended]) -> None:
    ended = fail(
        """
class Fails(Net):
    def setup(self, stage):
        raise RuntimeError("no data")
trainer().fit(Fails(), rows())
""",
        ranks=3,
    )
    assert "RuntimeError: no data" in ended.ranks[0].err
    assert not any(rank.err for rank in ended.ranks[1:]), ended.text  # it is rank 0's error that they raise


REFUSED = ("devices=2", "devices=[0, 1]", "num_nodes=2", 'strategy="fsdp"')


@pytest.mark.parametrize("options", REFUSED)
def test_what_starts_processes_itself_is_refused(fail: Callable[..., Ended], options: str) -> None:
    assert "ValueError" in fail(f"trainer({options})").text


def test_a_trainer_of_a_lightning_without_strategies_is_refused(fail: Callable[..., Ended]) -> None:
    assert (
        "ValueError: this Lightning is older than 1.6"
        in fail("ddp.lightning_trainer(type('Trainer', (), {}))()").text
    )


def test_what_lets_lightning_train_travels_with_its_scripts_alone() -> None:
    text = support_module(used_names("ddp.lightning_trainer(L.Trainer)(max_epochs=1)\nddp.finish()\n", "ddp"))
    assert "class _OfRank" in text
    assert "class _Split:" in text
    assert "class _OfRank" not in support_module(used_names("ddp.parallelize(model)\n", "ddp"))


FAULTS = {
    "rows of ranks change places": """
gather = ddp._all_rows
ddp._all_rows = lambda own, sizes: gather(own, sizes).roll(sizes[0], 0)
""",
    "a hook of one rank": """
if rank == 1:
    module.net[0].register_forward_hook(lambda part, args, output: output * 1.01)
""",
    "parameters of one rank": """
if rank == 1:
    with torch.no_grad():
        module.net[0].weight.mul_(1.01)
""",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_step_that_goes_wrong_is_noticed(lightning: RankServer, tmp_path: Path, fault: str) -> None:
    """A callback breaks the division of the steps from the seventh on."""
    program = f"""
class Breaks(L.Callback):
    def on_train_batch_start(self, trainer, module, batch, index):
        if trainer.global_step == 6:
            self.breaks(module)
    def breaks(self, module):
{textwrap.indent(FAULTS[fault], " " * 8)}
net = Net()
trainer(max_epochs=5, callbacks=[Breaks()]).fit(net, rows())
ddp.finish()
"""
    environment = {"NB2DDP_CHECKS": "300", "NB2DDP_STRICT": "1", "NB2DDP_PATIENCE": "4"}
    ended = lightning.run(tmp_path, START + TOOLS + program, 2, limit=100, environment=environment)
    assert not ended.hung
    assert ended.codes[0] == 1, ended.text
    # the seventh step, or a later one where a busy machine has made checks dear
    said = (
        "a check failed at step ([7-9]|1[0-9]): |have trained different models|the ranks went different ways"
    )
    assert re.search(said, ended.text), ended.text
