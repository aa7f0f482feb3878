"""The replicas of a model: what makes them equal, what is refused, and what a difference leads to."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch

from nb2ddp.runtime import same_losses
from tests.support.ranks import Ended
from tests.unit.runtime.trainer_tools import TOOLS as TRAINER_TOOLS

Run = Callable[..., Ended]


@pytest.mark.parametrize("name", ["UNSLOTH_FSDP2", "UNSLOTH_TP_SIZE"])
def test_unsloths_own_sharding_is_refused(run: Run, name: str) -> None:
    start = "import ddp_support as ddp\nddp.init_ranks(seed=0)\n"
    ended = run("note(went_on=True)", start=start, environment={name: "2"})
    assert ended.codes == [1, 1]
    assert ended.ranks[0].err == (
        f"{name} is set: this script gives each GPU a copy of the model. Unset it and start again.\n"
    )
    assert ended.notes == [{}, {}]


def test_replicas_that_differ_are_saved_first(run: Run) -> None:
    ended = run(
        """
        import torch
        ddp.init_process_group()
        model = torch.nn.Linear(2, 2)
        note(equal=ddp.check_replicas(model, 1))
        with torch.no_grad():
            model.bias[0] += 1e-6 * rank
        note(result=ddp.check_replicas(model, "result"))
        with ddp.main_process_only() as is_main:
            if is_main:
                torch.save(model.state_dict(), "model.pt")
        ddp.finish()
        print("saved")
        """,
        3,
    )
    assert ended.ranks[0].code == 1, ended.text
    assert (ended.folder / "model.pt").exists()
    assert ended.notes[0] == {"equal": 1, "result": "result"}
    assert "3 replicas equal, bit for bit" in ended.ranks[0].out
    assert "saved" in ended.ranks[0].out
    assert (
        "the ranks have trained different models: bias is not the same on all of them" in ended.ranks[0].err
    )


def test_a_model_that_the_notebook_has_not_made_is_left_alone(run: Run) -> None:
    ended = run(
        """
        import torch
        model = ddp.parallelize(torch.nn.Linear(2, 2))
        note(made=ddp.parallelize(None))
        model(torch.ones(4, 2)).sum().backward()
        ddp.check_replicas(None)
        ddp.check_replicas(model)
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes[0] == {"made": None}
    assert ended.ranks[0].out.count("2 replicas equal, bit for bit") == 2


@pytest.mark.parametrize(("differs", "code"), [(0, 1), (1, 1), (None, 0)])
def test_all_models_that_a_loop_trained_are_compared(run: Run, differs: int | None, code: int) -> None:
    ended = run(
        f"""
        import torch
        models = [torch.nn.Linear(2, 2) for _ in range(2)]
        for number, model in enumerate(models):
            ddp.parallelize(model)
            for _ in range(2):
                model(torch.ones(4, 2)).sum().backward()
            if number == {differs}:
                with torch.no_grad():
                    model.bias += 1e-6 * rank
        ddp.check_replicas(models[-1])
        ddp.finish()
        """
    )
    assert ended.ranks[0].code == code, ended.text
    told = "nb2ddp: ERROR: the ranks have trained different models: bias is not the same on all of them\n"
    assert ended.ranks[0].err.count(told) == code, ended.text
    assert ended.ranks[0].out.count("2 replicas equal, bit for bit") == 1 - code


# Gradients of several kinds, which are exchanged in a few buckets: as each of them alone. Of three ranks' numbers
# gloo adds the first two where a number stands in its bucket, as in DDP's buckets.
KINDS_OF_GRADIENTS = """
import torch, torch.distributed as dist
ddp.init_process_group()
torch.manual_seed(rank)
own = [torch.nn.Parameter(torch.zeros(size)) for size in ((), (3,), (5, 7), (4, 2, 3), (1000,))]
own += [torch.nn.Parameter(torch.zeros(6, 6, dtype=kind)) for kind in (torch.float64, torch.bfloat16)]
own += [torch.nn.Parameter(torch.zeros(2, 4, 3, 3).to(memory_format=torch.channels_last))]
table = torch.nn.Embedding(9, 4, sparse=True)
expected = []
for parameter in own:
    parameter.grad = torch.randn_like(parameter)
    alone = parameter.grad.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(alone)
    expected.append(alone / world_size)
table(torch.tensor([rank, 3])).sum().backward()
calls = []
all_reduce = dist.all_reduce
dist.all_reduce = lambda *args: (calls.append(1), all_reduce(*args))
ddp._average_gradients([*own, table.weight])
note(calls=len(calls), equal=[torch.equal(p.grad, e) for p, e in zip(own, expected)])
note(close=[torch.allclose(p.grad, e, rtol=2e-2 if p.dtype == torch.bfloat16 else 1e-6) for p, e in zip(own, expected)])
note(sparse=table.weight.grad.to_dense()[:, 0], all=[p.grad.double() for p in own])
"""


@pytest.mark.parametrize("ranks", [2, 3])
def test_gradients_are_averaged_together(run: Run, ranks: int) -> None:
    ended = run(KINDS_OF_GRADIENTS, ranks)
    assert ended.codes == [0] * ranks, ended.text
    first, *others = ended.notes
    assert first["calls"] == 5  # which are there, float32, float64, bfloat16, the sparse one
    assert ranks == 3 or all(first["equal"])
    assert all(first["close"])
    assert first["sparse"][3] == 1.0
    assert first["sparse"][0] == pytest.approx(1 / ranks)
    assert all(other == first for other in others)


def test_gradients_are_averaged_where_ranks_differ(run: Run) -> None:
    ended = run(
        """
        import torch
        ddp.init_process_group()
        own = [torch.nn.Parameter(torch.zeros(2)) for _ in range(3)]
        optimizer = torch.optim.SGD(own, lr=1.0)
        (own[rank] * torch.tensor([2.0, 4.0])).sum().backward()
        ddp._average_gradients(own)
        optimizer.step()
        note(after=own)
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes == [{"after": [[-1.0, -2.0], [-1.0, -2.0], [0.0, 0.0]]}] * 2


def test_dropout_leaves_the_generators_alike(run: Run) -> None:
    ended = run(
        """
        import random, torch
        model = ddp.parallelize(torch.nn.Sequential(torch.nn.Linear(3, 64), torch.nn.Dropout(0.5)))
        outs = [model(torch.ones(4, 3)).detach() for _ in range(2)]
        note(outs=outs, drawn=[random.random(), torch.rand(2)])
        zeros = [(out == 0).flatten().tolist() for out in outs]
        note(fresh=zeros[0] != zeros[1], rows_differ=bool((outs[0][0] != outs[0][2]).any()))
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes[0] == ended.notes[1]
    assert ended.notes[0]["fresh"]
    assert ended.notes[0]["rows_differ"]


def test_ranks_with_different_batches_are_refused(run: Run) -> None:
    ended = run(
        "import torch\nmodel = ddp.parallelize(torch.nn.Linear(2, 2))\nmodel(torch.full((4, 2), float(rank)))\n"
    )
    assert ended.codes == [1, 1], ended.text
    assert "rank 1 trains on another batch than rank 0. The ranks have prepared other data: one reads" in (
        ended.ranks[0].err
    )


CHANGED = """
    import torch
    class Net(torch.nn.Embedding):
        pass
    net = ddp.parallelize(Net(4, 2))
    for step in range(8):
        if rank == 1 and step == {step}:
            net.{change}
        with torch.set_grad_enabled({grad}):
            net(torch.arange(4))
"""


@pytest.mark.parametrize(
    ("change", "step", "grad", "said"),
    [
        ("eval()", 0, True, "Net in another mode"),
        ("eval()", 0, False, "Net in another mode"),
        ("eval()", 5, True, "Net in another mode"),
        ("double()", 0, True, "Net in other shapes, types"),
    ],
)
def test_a_model_that_one_rank_changes_is_refused(
    run: Run, change: str, step: int, grad: bool, said: str
) -> None:
    ended = run(CHANGED.format(change=change, step=step, grad=grad))
    assert ended.codes == [1, 1], ended.text
    assert f"rank 1 has {said}" in ended.ranks[0].err, ended.text
    assert "runs on one rank alone" in ended.ranks[0].err


def test_a_trainers_model_of_another_type_is_refused(run: Run) -> None:
    pytest.importorskip("transformers")
    program = """
t = Trainer(bert(), args(max_steps=2), train_dataset=cls_rows(16))
t.model.double() if rank == 1 else None
go(t)
"""
    ended = run(TRAINER_TOOLS + program, limit=120)
    assert ended.codes == [1, 1], ended.text
    assert "rank 1 has BertForSequenceClassification in other shapes, types or on" in ended.ranks[0].err


OTHER_LABELS = """
    import torch
    model = ddp.parallelize(torch.nn.Linear(2, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(6, 2), torch.tensor([0, 1, 2, 0, 1, 2])
    for step in range(6):
        labels = (y + rank) % 3 if step >= {first} else y  # what a set of strings gives, say
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
        note(step=step)
"""


@pytest.mark.parametrize("first", [0, 3])
def test_ranks_with_different_labels_are_refused(run: Run, first: int) -> None:
    ended = run(OTHER_LABELS.format(first=first))
    assert ended.codes == [1, 1], ended.text
    assert ended.notes[0]["step"] == first  # it ends before the next one
    assert (
        "ranks 1 and 0 compute different losses from the same batch: their labels, or" in ended.ranks[0].err
    )
    assert "or takes from a set or a folder: sort it (dict.fromkeys()" in ended.ranks[0].err


def test_a_loss_is_compared_where_an_output_is_used_twice_or_overflows(run: Run) -> None:
    ended = run(
        """
        import torch
        model = ddp.parallelize(torch.nn.Linear(2, 3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        x = torch.randn(6, 2)
        for step in range(5):
            optimizer.zero_grad()
            one, other = model(x), model(x * 2)
            loss = (one - other).pow(2).mean()
            loss.backward(retain_graph=True)
            (loss * (float("inf") if step == 2 else 1e-30)).backward()
            for p in model.parameters():
                p.grad.nan_to_num_(0, 0, 0)
            optimizer.step()
        note(done=True)
        """
    )
    assert ended.codes == [0, 0], ended.text


PARAMETERS_AMONG_OUTPUTS = """
    import torch
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.log_std = torch.nn.Linear(8, 5), torch.nn.Parameter(torch.zeros(5))
        def forward(self, x):
            std = self.log_std.exp()
            return self.linear(x) * std, self.linear.weight, std, self.log_std
    torch.manual_seed(0)
    model = ddp.parallelize(Model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x, y = torch.randn(6, 8), torch.tensor([0, 1, 2, 0, 1, 2])
    for step in range(9):
        optimizer.zero_grad()
        out, weight, std, log_std = model(x)
        labels = (y + rank) % 3 if step >= {first} else y
        loss = torch.nn.functional.cross_entropy(out, labels)
        (loss + 1e-3 * (weight.pow(2).sum() + (std * log_std).sum())).backward()
        optimizer.step()
    note(hooks=[len(p._backward_hooks or ()) for p in model.parameters()])
"""


def test_a_model_may_return_its_parameters(run: Run) -> None:
    ended = run(PARAMETERS_AMONG_OUTPUTS.format(first=9))
    assert ended.codes == [0, 0], ended.text
    assert ended.notes == [{"hooks": [0, 0, 0]}] * 2
    refused = run(PARAMETERS_AMONG_OUTPUTS.format(first=3))
    assert refused.codes == [1, 1], refused.text
    assert "ranks 1 and 0 compute different losses" in refused.ranks[0].err


def test_a_parameter_of_as_many_rows_as_a_rank_has_is_not_joined(run: Run) -> None:
    ended = run(
        """
        import torch, warnings
        warnings.simplefilter("error")
        class Model(torch.nn.Linear):
            def forward(self, x):
                return super().forward(x), self.weight
        model = ddp.parallelize(Model(8, 3))
        for rows in (6, 6, 6, 6, 5):
            out, weight = model(torch.randn(rows, 8))
            note(shapes=[list(out.shape), list(weight.shape)])
        """
    )
    assert ended.codes == [0, 0], ended.text
    for rank in ended.ranks:
        assert [note["shapes"] for note in rank.history] == [[[n, 3], [3, 8]] for n in (6, 6, 6, 6, 5)]


def test_gradients_of_gradients_are_no_different_losses(run: Run) -> None:
    ended = run(
        """
        import torch
        torch.manual_seed(0)
        makes = ddp.parallelize(torch.nn.Linear(4, 8))
        judges = ddp.parallelize(torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1)))
        counts = ddp.parallelize(torch.nn.Linear(8, 1))
        of_makes = torch.optim.SGD(makes.parameters(), lr=0.01)
        of_judges = torch.optim.SGD(judges.parameters(), lr=0.01)
        for step in range(5):
            real, made = torch.randn(7, 8), makes(torch.randn(7, 4))
            mix = (real + made.detach()).requires_grad_()
            asked = torch.autograd.grad(judges(mix).sum(), mix, create_graph=True)[0]
            loss = judges(made.detach()).mean() - judges(real).mean() + ((asked.norm(2, 1) - 1) ** 2).mean()
            of_judges.zero_grad()
            loss.backward()
            of_judges.step()
            of_makes.zero_grad()
            (-judges(made).mean()).backward()
            of_makes.step()
            out = counts(real)
            each = torch.autograd.grad(out**2, out, torch.eye(7).view(7, 7, 1), is_grads_batched=True)[0]
            note(shape=list(each.shape))
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert ended.notes == [{"shape": [7, 7, 1]}] * 2


def test_a_gradient_is_measured_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    grad = torch.randn(9, 5)
    places = torch.arange(45, dtype=torch.float64).cos()
    expected = [grad.double().norm().item(), (grad.double().flatten() @ places).item()]
    copied: list[int] = []
    double = torch.Tensor.double

    def counted(value: torch.Tensor) -> torch.Tensor:
        copied.append(value.numel())
        return double(value)

    monkeypatch.setattr(torch.Tensor, "double", counted)
    monkeypatch.setattr(same_losses, "_MEASURED", 7)
    assert same_losses._measures(grad) == pytest.approx(expected)
    assert same_losses._measures(grad.to_sparse()) == pytest.approx(expected)
    assert max(copied) == 7  # no more of it is copied at a time
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        of_complex = same_losses._measures(torch.complex(grad, grad).conj())
    assert of_complex[0] == pytest.approx(2**0.5 * expected[0])


def test_frozen_parameters_are_rank_0s_and_those_that_cannot_be_sent_stay(run: Run) -> None:
    ended = run(
        """
        import torch
        class Quantised(torch.Tensor):
            made = False
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None):
                if cls.made and function.__name__ in ("detach", "broadcast", "broadcast_", "copy_"):
                    raise NotImplementedError("no such operation of this type")
                return super().__torch_function__(function, types, args, kwargs or {})
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
        model[0].weight = torch.nn.Parameter(torch.full((2, 2), float(rank)), requires_grad=False)
        model.quantised = torch.nn.Parameter(torch.ones(3).as_subclass(Quantised), requires_grad=False)
        Quantised.made = True
        ddp.init_process_group()
        ddp._make_equal(model, [name for name, _ in model.named_parameters()])
        note(frozen=model[0].weight.tolist(), trained=model[1].weight.tolist())
        ddp.finish()
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert [notes["frozen"] for notes in ended.notes] == [[[0.0, 0.0], [0.0, 0.0]]] * 2
    assert ended.notes[0]["trained"] == ended.notes[1]["trained"]


def test_the_steps_of_a_loop_are_told(run: Run) -> None:
    ended = run(
        """
        import torch
        model = ddp.parallelize(torch.nn.Linear(2, 2))
        optimizer = torch.optim.SGD(model.parameters())
        for _ in range(3):
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
        ddp.check_replicas(model)
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert "nb2ddp: 2 replicas equal, bit for bit, after 3 steps\n" in ended.ranks[0].out


def test_the_steps_are_those_of_the_training_that_was_compared(run: Run) -> None:
    ended = run(
        """
        import torch
        model = ddp.parallelize(torch.nn.Linear(2, 2))
        for steps in (3, 2):
            optimizer = torch.optim.SGD(model.parameters())
            for _ in range(steps):
                model(torch.ones(4, 2)).sum().backward()
                optimizer.step()
            ddp.check_replicas(model)
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert [line[-14:] for line in ended.ranks[0].out.splitlines() if "equal" in line] == [
        " after 3 steps",
        " after 2 steps",
    ]


def test_the_steps_of_two_optimizers_are_not_added(run: Run) -> None:
    ended = run(
        """
        import torch
        models = [ddp.parallelize(torch.nn.Linear(2, 2)) for _ in range(2)]
        optimizers = [torch.optim.SGD(model.parameters()) for model in models]
        for _ in range(3):
            for model, optimizer in zip(models, optimizers):
                model(torch.ones(4, 2)).sum().backward()
                optimizer.step()
        optimizers[0].step()
        ddp.check_replicas(models[0])
        note(all=ddp._run.steps)
        """
    )
    assert ended.codes == [0, 0], ended.text
    assert "nb2ddp: 2 replicas equal, bit for bit, after 4 steps\n" in ended.ranks[0].out
    assert ended.notes[0] == {"all": 7}


def test_an_output_that_the_loss_does_not_use_is_not_noted() -> None:
    """Of a function with several outputs, DDP's own say, autograd calls the hooks of all: without a gradient."""
    losses = same_losses._Losses()
    used, unused = torch.ones(2, 3, requires_grad=True).unbind()
    losses.note([used, unused])
    used.sum().backward()
    assert [number for number, _ in losses.noted] == [0]


@pytest.mark.parametrize("apart", [False, True])
def test_a_model_that_is_gone_is_compared_as_it_was(run: Run, apart: bool) -> None:
    ended = run(
        f"""
        import torch
        def train():
            model = ddp.parallelize(torch.nn.Linear(2, 1))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
            with torch.no_grad():
                model.weight.add_(rank * {int(apart)})
        train()
        ddp.check_replicas()
        ddp.finish()
        """
    )
    said = "the ranks have trained different models: weight" if apart else "2 replicas equal, bit for bit"
    assert said in ended.text
    assert any(ended.codes) == apart, ended.text
