"""Programs with loops over whole batches, by what they show: those whose rows ranks divide, and those they cannot."""

from __future__ import annotations

# A case is a program; `data`, `step` and `end` save it from writing the loop again.
TOOLS = """
import copy, random, torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
def rows(count=22, width=5, classes=3):
    g = torch.Generator().manual_seed(1)
    return torch.randn(count, width, generator=g), torch.randint(0, classes, (count,), generator=g)
def batches(*tensors, size=4):
    return list(zip(*(tensor.split(size) for tensor in tensors)))
losses = []
def train(model, data, loss_of, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for batch in data:
        optimizer.zero_grad()
        loss = loss_of(*batch)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
def end(*models):
    note(losses=losses, parameters=[p.detach() for model in models for p in model.parameters()],
         drawn=[random.random(), torch.rand(1).item()])
def mlp(width=5, classes=3):
    return nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, classes))
class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp()
class Recurrent(nn.Module):  # sequence first
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 6), nn.Linear(6, 3)
    def forward(self, x):
        return self.head(self.lstm(x)[0][-1])
class TwoTargets(nn.Module):  # the second is missing (NaN) in some rows
    def __init__(self):
        super().__init__()
        self.body, self.one, self.two, self.calls = nn.Linear(5, 8), nn.Linear(8, 1), nn.Linear(8, 1), 0
    def hidden(self, x):
        self.calls += 1
        return F.dropout(torch.tanh(self.body(x)), 0.2, self.training)
def targets(*missing, count=28):
    t = torch.randn(count)
    t[list(missing)] = float("nan")
    x = rows(count)[0]
    return x, x.sum(1), t
x, y = rows()
"""

EXACT = {
    "mlp": "model = ddp.parallelize(mlp())\ntrain(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))\n",
    "a model in DataParallel": """
        model = ddp.parallelize(nn.DataParallel(mlp()))
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
        note(names=list(model.state_dict()), inner=type(model.module).__name__)
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model.module(x), y))
    """,
    "parametrizations that are cached": """
        class Halved(nn.Module):
            def forward(self, weight):
                return weight / 2
        model = mlp()
        nn.utils.parametrize.register_parametrization(model[0], "weight", Halved())
        ddp.parallelize(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for a, b in batches(x, y):
            with nn.utils.parametrize.cached():
                loss = F.cross_entropy(model(a), b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    """,
    "two calls before a backward() for each": """
        model = ddp.parallelize(mlp())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for (a, b), (c, d) in zip(batches(x[:12], y[:12]), batches(x[10:], y[10:])):
            optimizer.zero_grad()
            one, two = F.cross_entropy(model(a), b), F.cross_entropy(model(c), d)
            one.backward()
            two.backward()
            optimizer.step()
            losses.append(one.item() + two.item())
    """,
    "two calls before a backward() for each, the second of fewer rows than ranks": """
        model = ddp.parallelize(mlp())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for a, c in [(x[16:20], x[20:21])] * 4:
            optimizer.zero_grad()
            one, two = model(a).pow(2).mean(), model(c).exp().mean()
            two.backward()
            one.backward()
            optimizer.step()
            losses.append(one.item() + two.item())
    """,
    "two calls before a backward() for each, the first of fewer rows than ranks": """
        model = ddp.parallelize(mlp())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for a, c in [(x[20:21], x[16:20])] * 4:
            optimizer.zero_grad()
            one, two = model(a).pow(2).mean(), model(c).exp().mean()
            one.backward()
            two.backward()
            optimizer.step()
            losses.append(one.item() + two.item())
    """,
    "a discriminator that sees both kinds before a backward() for each": """
        maker, judge = ddp.parallelize(mlp(5, 5)), ddp.parallelize(mlp(5, 1))
        of_maker, of_judge = (torch.optim.SGD(of.parameters(), lr=0.1) for of in (maker, judge))
        for a, _ in batches(x, y):
            made = maker(torch.randn(len(a), 5))
            real, fake = judge(a), judge(made.detach())
            of_judge.zero_grad()
            one, two = F.softplus(-real).mean(), F.softplus(fake).mean()
            one.backward()
            two.backward()
            of_judge.step()
            of_maker.zero_grad()
            three = F.softplus(-judge(made)).mean()
            three.backward()
            of_maker.step()
            losses.append(one.item() + two.item() + three.item())
        end(maker, judge)
    """,
    "gradients that are kept beyond zero_grad()": """
        model = ddp.parallelize(mlp())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for a, b in batches(x, y):
            kept = []
            for loss_of in (lambda out: F.cross_entropy(out, b), lambda out: out.pow(2).mean()):
                optimizer.zero_grad()
                loss = loss_of(model(a))
                loss.backward()
                kept.append([p.grad for p in model.parameters()])
            for p, one, other in zip(model.parameters(), *kept):
                p.grad = one - (one * other).sum().clamp(max=0) / (other * other).sum() * other
            optimizer.step()
            losses.append(loss.item())
    """,
    "a scripted model": """
        model = ddp.parallelize(torch.jit.script(mlp()))
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "an Accelerator that has ended a training, and another one": """
        from accelerate import Accelerator
        model = mlp()
        for part in (slice(0, 12), slice(12, 22)):
            accelerator = ddp.as_one_process(lambda: Accelerator(cpu=True))
            ddp.parallelize(model)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for a, b in batches(x[part], y[part]):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(a), b)
                accelerator.backward(loss)
                optimizer.step()
                losses.append(loss.item())
            accelerator.end_training()
    """,
    "sparse embeddings": """
        class Ratings(nn.Module):
            def __init__(self):
                super().__init__()
                self.user, self.item, self.bias = (nn.Embedding(9, size, sparse=True) for size in (4, 4, 1))
                self.tower = nn.Linear(4, 4)
            def forward(self, users, items):
                both = self.user(users) + self.item(items)  # the two gradients share their values
                return (self.tower(both) * both).sum(1) + self.bias(items).squeeze(1)
        model = ddp.parallelize(Ratings())
        sparse = [model.user.weight, model.item.weight, model.bias.weight]
        for_sparse, for_dense = torch.optim.SparseAdam(sparse, lr=0.1), torch.optim.Adam(model.tower.parameters())
        users, items, touched, gradients = y * 2 + 1, (x[:, 0] * 3).long() % 9, [], []
        for u, i, target in batches(users[:19], items[:19], x[:19, 1]):
            for_sparse.zero_grad()
            for_dense.zero_grad()
            loss = 0.1 * F.mse_loss(model(u, i), target) + 0.1 * model.user(u).pow(2).mean()
            loss.backward()
            touched.append(len(model.user.weight.grad.coalesce().indices()[0]))
            gradients += [model.tower.weight.grad.tolist(), *(p.grad.to_dense().tolist() for p in sparse)]
            for_sparse.step()
            for_dense.step()
            losses.append(loss.item())
        note(touched=touched, gradients=gradients)
    """,
    "a sparse embedding that one rank's rows do not use, and its gradient asked for": """
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.table = nn.Embedding(9, 5, sparse=True)
            def forward(self, x, ids):
                if (ids >= 0).any():
                    x = x + self.table(ids.clamp(min=0)) * (ids >= 0)[:, None]
                return self.body(x)
        model = ddp.parallelize(Net())
        ids = torch.where(torch.arange(22) % 4 < 2, y, -1)  # rank 1's rows of a batch have none
        train(model, batches(x, ids, y), lambda x, ids, y: F.cross_entropy(model(x, ids), y),
              torch.optim.SGD(model.parameters(), lr=0.1))
        asked, = torch.autograd.grad(F.cross_entropy(model(x, y), y), [model.table.weight])
        note(asked=asked.to_dense())
    """,
    "sparse embeddings alone": """
        class Ratings(nn.Module):
            def __init__(self):
                super().__init__()
                self.user, self.item = nn.Embedding(9, 4, sparse=True), nn.Embedding(9, 4, sparse=True)
            def forward(self, users, items):
                return (self.user(users) * self.item(items)).sum(1)
        model = ddp.parallelize(Ratings())
        data, optimizer = batches(y, (x[:, 0] * 3).long() % 9, x[:, 1]), torch.optim.SparseAdam(model.parameters())
        train(model, data, lambda u, i, t: F.mse_loss(model(u, i), t), optimizer)
    """,
    "conv": """
        model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 3))
        model = ddp.parallelize(model)
        images = torch.randn(22, 1, 6, 6)
        train(model, batches(images, y), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "class weights": """
        model, weights = ddp.parallelize(mlp()), torch.tensor([0.1, 1.0, 5.0])
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y, weight=weights))
    """,
    "batches with no label, and masks of other dtypes": """
        class Net(Body):
            def forward(self, x, boxes, mask):
                counts, errors = mask.float(), self.body(x).pow(2).sum(1)
                known = boxes.ne(-1).float().sum(1)
                return (errors * counts).sum() / counts.sum(), (errors * known).sum() / known.sum().clamp(min=1)
        model, data = ddp.parallelize(Net()), list(batches(x, torch.zeros(22, 2).long(), 0.5 + torch.rand(22)))
        data[3] = data[3][0], torch.zeros(4, 0).long(), data[3][2]
        data[4] = data[4][0], data[4][1], torch.tensor([1, 0, 1, 1])
        train(model, data, lambda *batch: sum(model(*batch)))
    """,
    "a mask of floats that is full at first": """
        class Net(Body):
            def forward(self, x, y, mask):
                errors = self.body(x) - y
                return (errors.pow(2) * mask).sum() / mask.sum()
        mask = torch.cat([torch.ones(16, 3), (torch.rand(24, 3) > 0.4).float()])
        model = ddp.parallelize(Net())
        train(model, batches(rows(40)[0], torch.randn(40, 3), mask), model)
    """,
    "weights of values that are alike at first": """
        class Net(Body):
            def forward(self, x, y, *, weight):
                return (F.cross_entropy(self.body(x), y, reduction="none") * weight).sum() / weight.sum()
        model = ddp.parallelize(Net())
        weights = torch.cat([torch.full((16,), 0.5), torch.rand(24)])
        train(model, batches(*rows(40), weights), lambda x, y, weight: model(x, y, weight=weight))
    """,
    "padding that comes late": """
        class Net(Body):
            def forward(self, x, y):
                known = x.abs().sum(-1).gt(0).float()
                return ((self.body(x).sum(-1) - y).pow(2) * known).sum() / known.sum()
        x = torch.randn(40, 3, 5)
        x[16:] *= torch.rand(24, 3, 1) > 0.4
        model = ddp.parallelize(Net())
        train(model, batches(x, torch.randn(40, 3)), model)
    """,
    "targets that are missing late": """
        class Net(Body):
            def forward(self, x, y):
                known = ~torch.isnan(y)
                return ((self.body(x) - y.nan_to_num()).pow(2) * known).sum() / known.sum()
        y = torch.randn(40, 3)
        y[16:][torch.rand(24, 3) < 0.4] = float("nan")
        model = ddp.parallelize(Net())
        train(model, batches(rows(40)[0], y), model)
    """,
    "ignored labels": """
        model = ddp.parallelize(mlp())
        y[::3] = -100
        y[:2] = -100
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "label smoothing": """
        model = ddp.parallelize(mlp())
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y, label_smoothing=0.2, reduction="sum"))
    """,
    "fewer rows than ranks": """
        model = ddp.parallelize(mlp())
        train(model, batches(x[:9], y[:9], size=4), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "single rows": """
        model = ddp.parallelize(mlp())
        train(model, batches(x[:5], y[:5], size=1), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "dict output": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.one, self.two = nn.Linear(5, 8), nn.Linear(8, 3), nn.Linear(8, 1)
            def forward(self, x, scale=1.0):
                hidden = torch.tanh(self.body(x))
                return {"logits": self.one(hidden) * scale, "extra": [self.two(hidden), (hidden, "name")]}
        model = ddp.parallelize(Net())
        def loss_of(x, y):
            out = model(x, scale=2.0)
            return F.cross_entropy(out["logits"], y) + out["extra"][0].pow(2).mean() + out["extra"][1][0].abs().mean()
        train(model, batches(x, y), loss_of)
    """,
    "a backward() for each loss": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.one, self.two = nn.Linear(5, 8), nn.Linear(8, 3), nn.Linear(8, 1)
            def forward(self, x):
                hidden = torch.tanh(self.body(x))
                return self.one(hidden), self.two(hidden)
        model = ddp.parallelize(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for number, (a, b) in enumerate(batches(x, y)):
            optimizer.zero_grad()
            first, second = model(a)
            loss, more = F.cross_entropy(first, b), second.pow(2).mean()
            if number == 1:
                (loss + more).backward()
            else:
                loss.backward(retain_graph=True)
                losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
                (loss * more).backward()
            losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
            losses.append(loss.item())
            if number == 3:
                model.one.weight.requires_grad_(False)
    """,
    "dict input": """
        class Net(Body):
            def forward(self, batch, *, names):
                assert len(names) == len(batch["x"])
                return self.body(batch["x"]) * batch["factor"].unsqueeze(1)
        model = ddp.parallelize(Net())
        def loss_of(x, y):
            return F.cross_entropy(model({"x": x, "factor": y + 1.0}, names=["a"] * len(x)), y)
        train(model, batches(x, y), loss_of)
    """,
    "logits and loss": """
        class Net(Body):
            def forward(self, x, y=None):
                logits = self.body(x)
                return logits, F.cross_entropy(logits, y)
        model = ddp.parallelize(Net())
        train(model, batches(x, y), lambda x, y: model(x, y)[1])
    """,
    "labels are ignored late": """
        class Net(Body):
            def forward(self, x, y):
                return F.cross_entropy(self.body(x), y, ignore_index=-1)
        model = ddp.parallelize(Net())
        y[17] = -1
        train(model, batches(x, y), model)
    """,
    "a rank's rows have no label": """
        class Net(Body):
            def forward(self, x, y):
                return F.cross_entropy(self.body(x), y, ignore_index=-1)
        model = ddp.parallelize(Net())
        y[[12, 17]] = -1
        train(model, batches(x, y, size=3), model)
    """,
    "a new head, and clipping": """
        model = ddp.parallelize(mlp())
        for classes in (3, 5):
            model[2] = nn.Linear(8, classes)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for x, y in batches(*rows(classes=classes)):
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.2).item())
                optimizer.step()
        end(model)
    """,
    "more rows in an embedding": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.embedding, self.head = nn.Embedding(3, 5), nn.Linear(5, 3)
            def forward(self, y):
                return self.head(self.embedding(y))
        model = ddp.parallelize(Net())
        def train_on(y):
            train(model, batches(y), lambda y: F.cross_entropy(model(y), y.clamp(max=2)))
        train_on(y)
        model.embedding.weight.data = torch.cat([model.embedding.weight.data, torch.zeros(2, 5)])
        train_on(torch.cat([y, torch.tensor([3, 4, 3])]))
        end(model)
    """,
    "a penalty alone": """
        model = ddp.parallelize(mlp(classes=1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for part, _ in batches(x, y):
            optimizer.zero_grad()
            real = model(part).mean()
            real.backward()
            moved = (part * 1.5).requires_grad_(True)
            slope, = torch.autograd.grad(model(moved).sum(), moved, create_graph=True)
            penalty = ((slope.norm(2, 1) - 1) ** 2).mean()
            penalty.backward()
            losses.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
        end(model)
    """,
    "no row has a label": """
        from transformers import LlamaConfig, LlamaForCausalLM
        model = ddp.parallelize(LlamaForCausalLM(LlamaConfig(vocab_size=20, hidden_size=8, intermediate_size=16,
            num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2)))
        ids = torch.randint(0, 20, (20, 6))
        labels = ids.clone()
        for row in range(20):
            labels[row, : 1 + row % 4] = -100
        labels[12:16] = -100
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for ids, labels in batches(ids, labels):
            loss = model(ids, labels=labels).loss
            if torch.isnan(loss):
                continue
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
        end(model)
    """,
    "a rank's rows are masked": """
        class Net(Body):
            def forward(self, x, y, mask):
                each = F.cross_entropy(self.body(x), y, reduction="none")
                return (each * mask).sum() / mask.sum()
        model = ddp.parallelize(Net())
        mask = torch.ones(22, dtype=torch.long)
        mask[[0, 12, 17]] = 0
        train(model, batches(x, y, mask, size=3), model)
    """,
    "loss is a sum": """
        class Net(Body):
            def forward(self, x, y):
                return F.cross_entropy(self.body(x), y, reduction="sum")
        model = ddp.parallelize(Net())
        train(model, batches(x, y), lambda x, y: model(x, y) / 20)
    """,
    "llama": """
        from transformers import LlamaConfig, LlamaForCausalLM
        model = LlamaForCausalLM(LlamaConfig(vocab_size=20, hidden_size=8, intermediate_size=16, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2))
        model = ddp.parallelize(model)
        ids = torch.randint(0, 20, (14, 6))
        labels = ids.clone()
        for row in range(14):
            labels[row, : row % 5] = -100
        mask = torch.ones_like(ids)
        train(model, batches(ids, mask, labels),
            lambda i, m, l: model(input_ids=i, attention_mask=m, labels=l).loss)
    """,
    "bert": """
        from transformers import BertConfig, BertForTokenClassification
        model = BertForTokenClassification(BertConfig(vocab_size=20, hidden_size=8, intermediate_size=16,
            num_hidden_layers=1, num_attention_heads=2, num_labels=3, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0))
        model = ddp.parallelize(model)
        ids, labels = torch.randint(0, 20, (14, 6)), torch.randint(0, 3, (14, 6))
        labels[::2, 3:] = -100
        train(model, batches(ids, labels), lambda i, l: model(input_ids=i, labels=l).loss)
    """,
    "input with gradient": """
        model = ddp.parallelize(mlp())
        def loss_of(x, y):
            x = x.clone().requires_grad_()
            loss = F.cross_entropy(model(x), y)
            noise = torch.autograd.grad(loss, x)[0].sign() * 0.1
            return F.cross_entropy(model(x.detach() + noise), y)
        train(model, batches(x, y), loss_of)
    """,
    "penalty on the input's gradient norm": """
        class Critic(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
            def forward(self, x, y=None):
                score = self.body(x)
                return score if y is None else (score, F.cross_entropy(score, y))
        model = ddp.parallelize(Critic())
        def loss_of(x, y):
            x = x.clone().requires_grad_()
            score, loss = model(x, y)
            of_score, = torch.autograd.grad(score, x, torch.ones_like(score), create_graph=True)
            of_loss, = torch.autograd.grad(loss, x, create_graph=True)
            return loss + (of_score.norm(2, dim=1) - 1).pow(2).mean() + 10 * of_loss.pow(2).sum()
        train(model, batches(x, y), loss_of)
    """,
    "gradients of parameters that the loop asks for": """
        model = ddp.parallelize(mlp())
        def loss_of(x, y):
            loss = F.cross_entropy(model(x), y)
            of_last, = torch.autograd.grad(loss, [list(model.parameters())[-2]], retain_graph=True)
            return loss * (1 + of_last.norm().detach())
        train(model, batches(x, y), loss_of)
    """,
    "steps taken inside of a step": """
        from torch.func import functional_call
        model = ddp.parallelize(mlp())
        def loss_of(x, y):
            weights = dict(model.named_parameters())
            for _ in range(2):
                inner = F.cross_entropy(functional_call(model, weights, (x,)), y)
                grads = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
                weights = {name: value - 0.1 * grad for (name, value), grad in zip(weights.items(), grads)}
            return F.cross_entropy(functional_call(model, weights, (x.flip(1),)), y)
        train(model, batches(x, y), loss_of)
    """,
    "a model before the divided one": """
        body = nn.Linear(5, 5)
        model = ddp.parallelize(mlp())
        optimizer = torch.optim.SGD([*body.parameters(), *model.parameters()], lr=0.1)
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(body(x)), y), optimizer)
        note(body=list(body.parameters()))
    """,
    "two models": """
        maker, judge = ddp.parallelize(mlp(4, 5)), ddp.parallelize(mlp(5, 1))
        first, second = (torch.optim.Adam(m.parameters(), lr=0.01) for m in (maker, judge))
        for real, _ in batches(x, y):
            noise = torch.randn(len(real), 4)
            fake = maker(noise)
            loss = (F.softplus(-judge(real)) + F.softplus(judge(fake.detach()))).mean()
            second.zero_grad(); loss.backward(); second.step()
            lied = F.softplus(-judge(fake)).mean()
            first.zero_grad(); lied.backward(); first.step()
            losses += [loss.item(), lied.item()]
        end(maker, judge)
    """,
    "unfrozen later": """
        model = mlp()
        model[0].requires_grad_(False)
        model = ddp.parallelize(model)
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
        model[0].requires_grad_(True)
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "frozen later": """
        model = ddp.parallelize(mlp())
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
        model[0].requires_grad_(False)
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "extra criterion": """
        class Center(nn.Module):
            def __init__(self):
                super().__init__()
                self.centers = nn.Parameter(torch.randn(3, 3))
            def forward(self, out, y):
                return (out - self.centers[y]).pow(2).mean()
        model, center = ddp.parallelize(mlp()), Center()
        optimizer = torch.optim.SGD([*model.parameters(), *center.parameters()], lr=0.1)
        train(model, batches(x, y), lambda x, y: center(model(x), y), optimizer)
        note(centers=center.centers)
    """,
    "accumulation": """
        model = ddp.parallelize(mlp())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
        for turn, (a, b) in enumerate(batches(x, y), 1):
            loss = F.cross_entropy(model(a), b) / 2
            loss.backward()
            if turn % 2 == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
            losses.append(loss.item())
    """,
    "ema and copies": """
        model = ddp.parallelize(mlp())
        mean = copy.deepcopy(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for a, b in batches(x, y):
            loss_of = lambda x, y: F.cross_entropy(model(x), y) + (mean(x) - model(x)).pow(2).mean()
            train(model, [(a, b)], loss_of, optimizer)
            with torch.no_grad():
                for old, new in zip(mean.parameters(), model.parameters()):
                    old.mul_(0.9).add_(new, alpha=0.1)
        note(mean=list(mean.parameters()))
    """,
    "called twice": """
        model = ddp.parallelize(mlp())
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y) + model(x * 2).pow(2).mean())
    """,
    "eval with grad, and without": """
        model = ddp.parallelize(mlp())
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
        model.eval()
        losses.append(F.cross_entropy(model(x), y).item())
        with torch.no_grad():
            losses.append(F.cross_entropy(model(x), y).item())
        model.train()
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "lazy": """
        model = ddp.parallelize(nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(3)))
        with torch.no_grad():
            model(x)
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "part is not used": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two, self.never = mlp(), mlp(), nn.Linear(2, 2)
            def forward(self, x, second):
                return self.two(x) if second else self.one(x)
        model = ddp.parallelize(Net())
        turns = [(a, b, n % 2 == 1) for n, (a, b) in enumerate(batches(x, y))]
        train(model, turns, lambda x, y, second: F.cross_entropy(model(x, second), y))
    """,
    "shuffled as in one process": """
        model = ddp.parallelize(mlp())
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4, shuffle=True)
        for epoch in range(2):
            train(model, loader, lambda x, y: F.cross_entropy(model(x), y))
        note(drawn_in_loop=torch.rand(2))
    """,
    "output that is changed in place": """
        model = ddp.parallelize(mlp())
        def loss_of(x, y):
            out = model(x)
            out[:, 0] += 1
            return F.cross_entropy(out.squeeze(), y)
        train(model, batches(x, y), loss_of)
    """,
    "lbfgs": """
        model, x = ddp.parallelize(mlp().double()), x.double()  # its steps magnify rounding
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3)
        for a, b in batches(x, y)[:3]:
            def closure():
                optimizer.zero_grad()
                loss = F.cross_entropy(model(a), b)
                loss.backward()
                return loss
            losses.append(optimizer.step(closure).item())
    """,
    "accelerator": """
        from accelerate import Accelerator
        accelerator = ddp.as_one_process(lambda: Accelerator())
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        model = ddp.parallelize(model)
        seen = 0
        for a, b in loader:
            seen += len(a)
            loss = F.cross_entropy(model(a), b)
            accelerator.backward(loss)
            optimizer.step(), optimizer.zero_grad()
            losses.append(accelerator.gather(loss.detach()).item())
        assert seen == 22 and accelerator.num_processes == 1 and accelerator.is_main_process
        assert type(accelerator.unwrap_model(model)).__name__ == "Sequential"
    """,
    "buffers": """
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.register_buffer("seen", torch.zeros(()))
            def forward(self, x):
                self.seen += 1
                return self.body(x)
        model = ddp.parallelize(Net())
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
        note(seen=model.seen)
    """,
    "dropout": """
        model = nn.Sequential(nn.Linear(5, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 3))
        model = ddp.parallelize(model)
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "dropout of attention, and of what an LSTM gives": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.lstm, self.head = nn.LSTM(5, 8, batch_first=True), nn.Linear(8, 3)
                self.attend = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
            def forward(self, x):
                hidden = F.dropout(self.lstm(x)[0], 0.2, self.training)
                return self.head(self.attend(hidden).mean(1))
        model = ddp.parallelize(Net())
        train(model, batches(torch.randn(22, 4, 5), y), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "noise in forward": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(5, 8), nn.Linear(4, 3)
            def forward(self, x):
                mean, scale = self.body(x + 0.1 * torch.rand(len(x), 1)).chunk(2, 1)
                z = torch.distributions.Normal(mean, scale.exp()).rsample() + torch.randn_like(mean)
                kept = torch.empty_like(z).bernoulli_(0.8) if torch.rand([]) < 0.5 else F.gumbel_softmax(z)
                return self.head(z * kept)
        model = ddp.parallelize(Net())
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "weights of losses in the model": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.weights = mlp(), nn.Parameter(torch.zeros(2))
            def forward(self, x):
                return self.body(x)
        model = ddp.parallelize(Net())
        def loss_of(x, y):
            out = model(x)
            both = torch.stack([F.cross_entropy(out, y), out.pow(2).mean()])
            return (both * torch.exp(-model.weights) + model.weights).sum()
        train(model, batches(x, y), loss_of)
    """,
    "a part is called before the model": """
        class Towers(nn.Module):
            def __init__(self):
                super().__init__()
                self.one, self.two, self.scale = mlp(), nn.Linear(5, 3), nn.Parameter(torch.tensor(1.0))
            def forward(self, x):
                return self.one(x)
        model = ddp.parallelize(Towers())
        def loss_of(x, y):
            alike = F.normalize(model.one(x)) @ F.normalize(model.two(x)).T * model.scale.exp()
            return F.cross_entropy(alike, torch.arange(len(x))) + F.cross_entropy(model(x), y)
        train(model, batches(x, y), loss_of)
    """,
    "a head that is used later": """
        class Heads(Body):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(5, 3)
            def forward(self, x):
                return (self.body(x), self.head(x)) if len(losses) > 3 else (self.body(x),)
        model = ddp.parallelize(Heads())
        train(model, batches(x, y), lambda x, y: sum(F.cross_entropy(out, y) for out in model(x)))
    """,
    "a number that is returned later, and first": """
        class Heads(Body):
            def __init__(self):
                super().__init__()
                self.head = nn.Linear(5, 3)
            def forward(self, x):
                more = self.head(x).pow(2).mean()
                return (more, self.body(x)) if len(losses) > 3 else (self.body(x), 0 * more)
        model = ddp.parallelize(Heads())
        def loss_of(x, y):
            one, other = model(x)
            return one + F.cross_entropy(other, y) if other.ndim else F.cross_entropy(one, y) + other
        train(model, batches(x, y), loss_of)
        note(same=model(x)[0].item())
    """,
    "another form in some calls": """
        class Counts(Body):
            calls = 0
            def forward(self, x, y):
                self.calls += 1
                out = self.body(x)
                loss = F.cross_entropy(out, y, reduction="sum")
                return {"loss": loss} if self.calls % 5 else {"loss": loss, "out": out}
        model = ddp.parallelize(Counts())
        shapes = []
        def loss_of(x, y):
            given = model(x, y)
            shapes.append(len(given.get("out", ())))
            return given["loss"] / 9
        train(model, batches(x, y), loss_of)
        note(shapes=shapes)
    """,
    "gradients of samples": """
        from torch.func import functional_call, grad, vmap
        model = ddp.parallelize(mlp())
        def of_one(parameters, x, y):
            return F.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])
        norms = []
        def loss_of(x, y):
            parameters = {name: p.detach() for name, p in model.named_parameters()}
            found = vmap(grad(of_one), in_dims=(None, 0, 0))(parameters, x, y)
            norms.append(found["0.weight"].norm().item())
            return F.cross_entropy(model(x), y)
        train(model, batches(x, y), loss_of)
        note(norms=norms)
    """,
    "penalty on parameters, one of them not used": """
        model = mlp()
        model.unused = nn.Linear(2, 2)
        model.forward = lambda x: model[2](model[1](model[0](x)))
        ddp.parallelize(model)
        def loss_of(x, y):
            return F.cross_entropy(model(x), y) + 0.01 * sum(p.pow(2).sum() for p in model.parameters())
        train(model, batches(x, y), loss_of)
    """,
    "a form for one rank's rows, and another for the others'": """
        class Net(TwoTargets):
            def forward(self, x, y, t):
                h = self.hidden(x)
                losses = {"one": F.mse_loss(self.one(h).squeeze(-1), y)}
                if not t.isnan().any():
                    losses["two"] = F.mse_loss(self.two(h).squeeze(-1), t)
                return losses
        model = ddp.parallelize(Net())
        data = batches(*targets(12, *range(16, 20), 21, 24))
        train(model, data, lambda *batch: sum(model(*batch).values()))
        note(calls=model.calls)
    """,
    "None for one rank's rows": """
        class Net(TwoTargets):
            def forward(self, x, y, t):
                h, has, two = self.hidden(x), ~t.isnan(), None
                if has.sum() > 0:
                    two = F.mse_loss(self.two(h)[has].squeeze(-1), t[has])
                return F.mse_loss(self.one(h).squeeze(-1), y), two
        model = ddp.parallelize(Net())
        data = batches(*targets(12, 13, *range(16, 20), 22, 23))
        train(model, data, lambda *batch: sum(loss for loss in model(*batch) if loss is not None))
    """,
    "a number without a gradient for one rank's rows": """
        class Net(TwoTargets):
            def forward(self, x, y, t):
                h, has, two = self.hidden(x), ~t.isnan(), torch.tensor(0.0)
                if has.any():
                    two = F.mse_loss(self.two(h)[has].squeeze(-1), t[has])
                return F.mse_loss(self.one(h).squeeze(-1), y) + two, two
        model = ddp.parallelize(Net())
        train(model, batches(*targets(12, 13, *range(16, 20), 22, 23)), lambda *batch: 0.1 * sum(model(*batch)))
    """,
    "one rank's rows raise": """
        class Net(TwoTargets):
            def forward(self, x, y, t):
                h, has = self.hidden(x), ~t.isnan()
                assert has.any()
                return self.two(h).squeeze(-1)
        model = ddp.parallelize(Net())
        def loss_of(x, y, t):
            out = model(x, y, t)
            return F.mse_loss(out[~t.isnan()], t[~t.isnan()])
        train(model, batches(*targets(12, 13, 22, 23)), loss_of)
    """,
    "words for some rows": """
        class Net(TwoTargets):
            def forward(self, x, words):
                h = self.hidden(x)
                return [self.one(h), self.two(h)] if "b" in words else [self.one(h)]
        model = ddp.parallelize(Net())
        x, y, t = targets()
        words = list("bbbb" * 3 + "abaa" + "aaaa" + "aaab" + "bbbb")
        data = [(*batch, words[4 * number : 4 * number + 4]) for number, batch in enumerate(batches(x, y))]
        train(model, data, lambda x, y, words: sum((out.squeeze(-1) - y).pow(2).mean() for out in model(x, words)))
    """,
}
# Right, and no faster: every rank computes whole batches, and a warning says why.
WHOLE = {
    "class weights in the model, of a class that comes late": """
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, 7.0]), label_smoothing=0.1)
            def forward(self, x, y):
                return self.loss(self.body(x), y)
        x, y = rows(40)
        y[:16] %= 2
        model = ddp.parallelize(Net())
        train(model, batches(x, y), model)
    """,
    "class weights that a notebook replaces, beside a count": """
        class Net(Body):
            def __init__(self):
                super().__init__()
                self.register_buffer("weights", torch.ones(3))
            def forward(self, x, y):
                out = self.body(x)
                return F.cross_entropy(out, y, weight=self.weights), (out.argmax(1) == y).sum()
        model, data = ddp.parallelize(Net()), batches(*rows(40))
        train(model, data, lambda *batch: model(*batch)[0])
        model.weights = torch.tensor([1.0, 4.0, 9.0])
        train(model, data, lambda *batch: model(*batch)[0])
        note(right=[model(*batch)[1].item() for batch in data])
    """,
    "an ignored label of its own that comes late": """
        class Net(Body):
            def forward(self, x, y):
                return F.cross_entropy(self.body(x), y, ignore_index=255)
        x, y = rows(40)
        y[16:][torch.rand(24) < 0.4] = 255
        model = ddp.parallelize(Net())
        train(model, batches(x, y), model)
    """,
    "values that two arguments choose together, all of them at first": """
        class Net(Body):
            def forward(self, x, y, mask):
                counts = mask * (y > 0).float()
                return ((self.body(x) - y).pow(2) * counts).sum() / counts.sum().clamp(min=1)
        mask = torch.cat([torch.ones(16, 3), (torch.rand(24, 3) > 0.4).float()])
        model = ddp.parallelize(Net())
        train(model, batches(rows(40)[0], torch.randn(40, 3), mask), model)
    """,
    "a mean over rows that the model selects by a threshold, all of them at first": """
        class Net(Body):
            def forward(self, x, y):
                keep = (x[:, 0] < 0.3).float()
                return ((self.body(x).sum(1) - y).pow(2) * keep).sum() / keep.sum().clamp(min=1)
        x = rows(40)[0]
        x[:16, 0] = -x[:16, 0].abs()
        model = ddp.parallelize(Net())
        train(model, batches(x, torch.randn(40)), lambda *batch: 0.1 * model(*batch))
    """,
    "labels with weights that the model finds": """
        class Net(Body):
            def forward(self, x, y):
                return F.cross_entropy(self.body(x), 2 - y, weight=torch.tensor([7.0, 1.0, 1.0]))
        x, y = rows(40)
        y[:16] %= 2
        model = ddp.parallelize(Net())
        train(model, batches(x, y), model)
    """,
    "sequence first": """
        model = ddp.parallelize(Recurrent())
        steps = torch.randn(22, 7, 5)
        train(model, batches(steps, y), lambda x, y: F.cross_entropy(model(x.transpose(0, 1)), y))
    """,
    "sequence first, as long as the batch": """
        model = ddp.parallelize(Recurrent())
        steps = torch.randn(20, 4, 5)
        train(model, batches(steps, y[:20]), lambda x, y: F.cross_entropy(model(x.transpose(0, 1)), y))
    """,
    "contrastive": """
        class Net(Body):
            def forward(self, x):
                z = F.normalize(self.body(x), dim=1)
                return F.cross_entropy(z @ z.roll(1, 1).T, torch.arange(len(x)))
        model = ddp.parallelize(Net())
        train(model, batches(x), model)
    """,
    "batch norm": """
        model = ddp.parallelize(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)))
        train(model, batches(x[:20], y[:20]), lambda x, y: F.cross_entropy(model(x), y))
        note(running=model[1].running_mean)
        model.eval()
        losses.append(F.cross_entropy(model(x), y).item())
    """,
    "batch norm, and two calls for a loss": """
        model = ddp.parallelize(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)))
        train(model, batches(x[:20], y[:20]), lambda x, y: F.cross_entropy(model(x), y) + model(x + 1).pow(2).mean())
        note(running=model[1].running_mean)
    """,
    "batch norm beside a sparse embedding": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.norm, self.head = nn.Embedding(3, 5, sparse=True), nn.BatchNorm1d(5), nn.Linear(5, 3)
            def forward(self, x, y):
                return self.head(self.norm(self.table(y) + x))
        model = ddp.parallelize(Net())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, batches(x[:20], y[:20]), lambda x, y: F.cross_entropy(model(x, y), 2 - y), optimizer)
    """,
    "a sparse matrix": """
        class Graph(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(5, 3)
            def forward(self, x, adjacency):
                return torch.sparse.mm(adjacency, self.layer(x))
        model = ddp.parallelize(Graph())
        adjacency = torch.eye(22).roll(1, 0).to_sparse()
        train(model, [(x, y)] * 3, lambda x, y: F.cross_entropy(model(x, adjacency), y))
    """,
    "batch norm, and a backward() for each loss": """
        model = ddp.parallelize(nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for a, b in batches(x[:20], y[:20]):
            optimizer.zero_grad()
            out = model(a)
            F.cross_entropy(out, b).backward(retain_graph=True)
            out.pow(2).mean().backward()
            optimizer.step()
            losses.append(out.sum().item())
    """,
    "outputs in ever more forms": """
        class Net(Body):
            def forward(self, x):
                out = self.body(x)
                return out, *(out.pow(2).mean() for _ in losses)
        model = ddp.parallelize(Net())
        def loss_of(x, y):
            out, *more = model(x)
            return F.cross_entropy(out, y) + 0.01 * sum(more)
        train(model, batches(x, y, size=1) + batches(x, y, size=2), loss_of)
    """,
    "contrastive, later": """
        class Net(Body):
            def forward(self, x):
                z = F.normalize(self.body(x), dim=1)
                loss = F.cross_entropy(z @ z.roll(1, 1).T, torch.arange(len(x)))
                return (z, loss) if len(losses) > 3 else (z,)
        model = ddp.parallelize(Net())
        def loss_of(x, y):
            z, *more = model(x)
            return sum(more, F.cross_entropy(z, y))
        train(model, batches(x, y), loss_of)
    """,
    "squeeze of a last batch of three rows": """
        class Net(Body):
            def forward(self, x):
                return self.body(x).squeeze()
        model = ddp.parallelize(Net())
        model.body[2] = nn.Linear(8, 1)
        train(model, batches(x[:19], y[:19]), lambda x, y: F.mse_loss(model(x), y.float()))
    """,
    "a distribution": """
        class Policy(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.value = mlp(), nn.Linear(5, 1)
            def forward(self, x):
                return torch.distributions.Categorical(logits=self.body(x)), self.value(x).squeeze(1)
        model = ddp.parallelize(Policy())
        def loss(x, y):
            actions, values = model(x)
            return -(actions.log_prob(y) * values.detach()).mean() + (values - y).pow(2).mean()
        train(model, batches(x, y), loss)
    """,
    "an object of the notebook's own": """
        import dataclasses
        @dataclasses.dataclass
        class Output:
            logits: torch.Tensor
            loss: torch.Tensor
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.unused = mlp(), nn.Linear(2, 2)
            def forward(self, x, y):
                logits = self.body(x)
                return Output(logits, F.cross_entropy(logits, y))
        model = ddp.parallelize(Net())
        train(model, batches(x, y), lambda x, y: model(x, y).loss + model(x, y).logits.var(0).sum())
    """,
    "attention over the batch": """
        class Net(Body):
            def forward(self, x):
                return self.body(x - x.mean(0))
        model = ddp.parallelize(Net())
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "statistics of the rows": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.counts = mlp(), []
                self.register_buffer("mean", torch.zeros(5))
            def forward(self, x):
                if self.training:
                    self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
                    self.counts.append(len(x))
                return self.body(x - self.mean)
        model = ddp.parallelize(Net())
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
        note(mean=model.mean, counts=model.counts)
    """,
    "batch norm by hand": """
        class Net(Body):
            def forward(self, x):
                return self.body((x - x.mean(0)) if self.training else x)
        model = ddp.parallelize(Net())
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "hook of the notebook": """
        model, seen = ddp.parallelize(mlp()), {}
        model[0].register_forward_hook(lambda module, given, out: seen.update(hidden=out))
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y) + seen["hidden"].pow(2).mean())
    """,
    "hooks that count": """
        model, calls = ddp.parallelize(mlp()), []
        model.register_forward_pre_hook(lambda module, given: calls.append(("before", len(given[0]))))
        model[0].register_forward_hook(lambda module, given, out: calls.append(("first", len(out))))
        model[0].register_forward_hook(lambda module, given, out: calls.append(("second", len(out))))
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
        note(calls=calls)
    """,
    "hook on a gradient": """
        model = mlp()
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient.clamp(-0.05, 0.05))
        ddp.parallelize(model)
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
    """,
    "object in the arguments": """
        class Batch:
            def __init__(self, x):
                self.x = x
        class Net(Body):
            def forward(self, batch):
                return self.body(batch.x)
        model = ddp.parallelize(Net())
        train(model, batches(x, y), lambda x, y: F.cross_entropy(model(Batch(x)), y))
    """,
    "fewer targets among one rank's rows": """
        class Net(TwoTargets):
            def forward(self, x, y, t):
                h, has = self.hidden(x), ~t.isnan()
                return F.mse_loss(self.one(h).squeeze(-1), y) + F.mse_loss(self.two(h)[has].squeeze(-1), t[has])
        model = ddp.parallelize(Net())
        train(model, batches(*targets(12, 22, 23)), model)
    """,
    "nothing to add for one rank's rows": """
        class Net(TwoTargets):
            def forward(self, x, y, t):
                h, has = self.hidden(x), ~t.isnan()
                two = F.mse_loss(self.two(h)[has].squeeze(-1), t[has]) if has.any() else h.sum() * 0.0
                return F.mse_loss(self.one(h).squeeze(-1), y) + two
        model = ddp.parallelize(Net())
        train(model, batches(*targets(12, 13, 22, 23)), model)
    """,
}
