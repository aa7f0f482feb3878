"""A step may leave out an expert or a tower: two ranks wait for neither, and train what one process does."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.ranks import Ended

# A model with a part for images, trained by the runtime module and by one process, in every way of
# checkpointing; the images come with all batches, with none, with some, on one rank, in some steps.
PROGRAM = """
import itertools
from types import SimpleNamespace

import ddp_support as ddp
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self, trains_spare):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.image, self.text, self.expert = (nn.Linear(8, 8) for _ in range(4))
        self.embed.requires_grad_(False)
        self.expert.requires_grad_(trains_spare)  # nothing ever uses it

    def forward(self, batch, with_image, reentrant):
        def run(layer, hidden):
            return layer(hidden) if reentrant is None else checkpoint(layer, hidden, use_reentrant=reentrant)

        hidden = self.embed(batch).detach().requires_grad_(True)
        if with_image:
            hidden = run(self.image, hidden)
        return run(self.text, hidden).pow(2).mean()


def batch_of(step, part, of_rank):
    return torch.randn(3, 8, generator=torch.Generator().manual_seed(100 * step + 10 * part + of_rank))


def train(model, ranks, parts, uses, reentrant, optimizer, backward=torch.Tensor.backward, accelerator=None):
    for step in range(5):
        for part in range(parts):
            if accelerator:
                accelerator.sync_gradients = part == parts - 1
            for of_rank in ranks:
                loss = model(batch_of(step, part, of_rank), uses(step, part, of_rank), reentrant)
                backward(loss / parts / len(ranks))
        optimizer.step()
        optimizer.zero_grad()
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


rank, local_rank, world_size = ddp.init()
ddp.init_process_group()
torch.set_default_dtype(torch.float64)  # Adam makes much of the last digits
USES = {
    "all": lambda step, part, of_rank: True,
    "none": lambda step, part, of_rank: False,
    "some": lambda step, part, of_rank: (step + part) % 2 == 0,
    "one rank": lambda step, part, of_rank: (step + of_rank) % 2 == 0,
    "some steps": lambda step, part, of_rank: step % 2 == 0,
}
for uses, reentrant, spare, parts in itertools.product(USES, (None, False, True), (False, True), (1, 3)):
    model = Model(spare)
    accelerator = SimpleNamespace(backward=lambda loss: loss.backward(), sync_gradients=True)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1)
    trainer = SimpleNamespace(optimizer=optimizer, accelerator=accelerator)
    ddp._average_after_backward(trainer)
    backward = accelerator.backward
    ddp._average_after_backward(trainer)  # before a second train()
    assert accelerator.backward is backward
    here = train(model, [rank], parts, USES[uses], reentrant, optimizer, backward, accelerator)
    model = Model(spare)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.1, weight_decay=0.1)
    alone = train(model, range(world_size), parts, USES[uses], reentrant, optimizer)
    ranks = [torch.empty_like(here) for _ in range(world_size)]
    dist.all_gather(ranks, here)
    assert torch.equal(*ranks), f"the ranks differ: {uses}, {reentrant}, {spare}, {parts}"
    torch.testing.assert_close(here, alone)
    print(uses, reentrant, spare, parts, flush=True)
ddp.finish()
"""


def test_two_ranks_train_what_one_process_trains(run: Callable[..., Ended]) -> None:
    ended = run(PROGRAM, start="", limit=200)
    assert ended.codes == [0, 0], ended.text
    assert len([line for line in ended.ranks[0].out.splitlines() if not line.startswith("nb2ddp")]) == 60
