"""Recipes of training steps that people write by hand beyond one model and one loss; each is data.

A recipe has the code of its models, the names of what is trained, the code that makes its optimizers, and the
code of one step on a batch ``xb, yb`` that leaves ``loss``, a number to report. ``ZERO(name)`` and ``STEP(name)``
stand for an optimizer's calls, ``BACK(loss)`` for backward.
"""

# ruff: noqa: E501 (programs' text)

from __future__ import annotations

from dataclasses import dataclass

_NET = """
class Net(nn.Module):
    def __init__(self, n_in=8, n_out=3, hidden=16):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(n_in, hidden), nn.ReLU(), nn.Dropout(DROPOUT))
        self.head = nn.Linear(hidden, n_out)

    def forward(self, x):
        return self.head(self.body(x))
"""


@dataclass(frozen=True)
class Recipe:
    """One way to train."""

    models: str
    made: str
    step: str
    trained: tuple[str, ...] = ("model",)
    scores: str = "model(X_val)"  # what an evaluation looks at
    uses: tuple[str, ...] = ()


_ADAM = "optimizer = torch.optim.Adam(model.parameters(), lr=0.01)"
_PLAIN = "ZERO(optimizer)\n{}\nBACK(loss)\nSTEP(optimizer)"
_CE = "loss = F.cross_entropy(model(xb), yb)"

RECIPES = {
    "plain": Recipe(_NET, f"model = Net()\n{_ADAM}", _PLAIN.format(_CE)),
    "gan": Recipe(
        _NET,
        """
G, D = Net(4, 8), Net(8, 1)
opt_g = torch.optim.Adam(G.parameters(), lr=0.01, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=0.01, betas=(0.5, 0.999))
bce = nn.BCEWithLogitsLoss()
""",
        """
real, fake = torch.ones(len(xb), 1), torch.zeros(len(xb), 1)
z = torch.randn(len(xb), 4)
ZERO(opt_d)
made = G(z)
loss_d = bce(D(xb), real) + bce(D(made.detach()), fake)
BACK(loss_d)
STEP(opt_d)
ZERO(opt_g)
loss = bce(D(made), real)
BACK(loss)
STEP(opt_g)
""",
        ("G", "D"),
        "D(X_val)",
    ),
    "wgan": Recipe(
        _NET,
        """
G, D = Net(4, 8), Net(8, 1)
opt_g = torch.optim.RMSprop(G.parameters(), lr=0.002)
opt_d = torch.optim.RMSprop(D.parameters(), lr=0.002)
""",
        """
for _ in range(2):
    fake = G(torch.randn(len(xb), 4)).detach()
    eps = torch.rand(len(xb), 1)
    mixed = (eps * xb + (1 - eps) * fake).requires_grad_(True)
    grad, = torch.autograd.grad(D(mixed).sum(), mixed, create_graph=True)
    penalty = ((grad.norm(2, dim=1) - 1) ** 2).mean()
    ZERO(opt_d)
    loss_d = D(fake).mean() - D(xb).mean() + 10 * penalty
    BACK(loss_d)
    STEP(opt_d)
ZERO(opt_g)
loss = -D(G(torch.randn(len(xb), 4))).mean()
BACK(loss)
STEP(opt_g)
""",
        ("G", "D"),
        "D(X_val)",
    ),
    "two_optimizers": Recipe(
        _NET,
        """
encoder, head = Net(8, 8), nn.Linear(8, 3)
opt_e = torch.optim.AdamW(encoder.parameters(), lr=0.005)
opt_h = torch.optim.SGD(head.parameters(), lr=0.1, momentum=0.9)
""",
        """
ZERO(opt_e)
ZERO(opt_h)
loss = F.cross_entropy(head(encoder(xb).relu()), yb)
BACK(loss)
STEP(opt_e)
STEP(opt_h)
""",
        ("encoder", "head"),
        "head(encoder(X_val).relu())",
    ),
    "one_optimizer_two_models": Recipe(
        _NET,
        """
encoder, head = Net(8, 8), nn.Linear(8, 3)
optimizer = torch.optim.Adam(list(encoder.parameters()) + list(head.parameters()), lr=0.01)
""",
        _PLAIN.format("loss = F.cross_entropy(head(encoder(xb)), yb)"),
        ("encoder", "head"),
        "head(encoder(X_val))",
    ),
    "module_list": Recipe(
        _NET,
        "models = [Net() for _ in range(3)]\nopts = [torch.optim.Adam(m.parameters(), lr=0.01) for m in models]\nmodel = models[0]",
        """
loss = 0.0
for m, o in zip(models, opts):
    ZERO(o)
    each = F.cross_entropy(m(xb), yb)
    BACK(each)
    STEP(o)
    loss = loss + each.detach() / len(models)
""",
        ("models[0]", "models[1]"),
        "sum(m(X_val) for m in models)",
    ),
    "siamese": Recipe(
        _NET,
        f"model = Net(8, 6)\n{_ADAM}",
        _PLAIN.format(
            """
a, b = model(xb), model(xb.flip(0))
same = (yb == yb.flip(0)).float()
gap = F.pairwise_distance(a, b)
loss = (same * gap.pow(2) + (1 - same) * F.relu(1 - gap).pow(2)).mean()
""".strip()
        ),
    ),
    "triplet": Recipe(
        _NET,
        f"model = Net(8, 6)\n{_ADAM}\ntriplet = nn.TripletMarginLoss(margin=0.5)",
        _PLAIN.format(
            """
near = xb + 0.05 * torch.randn_like(xb)
far = xb[torch.randperm(len(xb))]
loss = triplet(model(xb), model(near), model(far))
""".strip()
        ),
    ),
    "simclr": Recipe(
        _NET,
        f"model = Net(8, 6)\n{_ADAM}",
        _PLAIN.format(
            """
both = torch.cat([xb + 0.1 * torch.randn_like(xb), xb + 0.1 * torch.randn_like(xb)])
z = F.normalize(model(both), dim=1)
sim = z @ z.T / 0.5
sim.fill_diagonal_(-1e9)
n = len(xb)
target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
loss = F.cross_entropy(sim, target)
""".strip()
        ),
    ),
    "moco": Recipe(
        _NET,
        f"""
model = Net(8, 6)
key_model = copy.deepcopy(model)
for p in key_model.parameters():
    p.requires_grad = False
queue = F.normalize(torch.randn(6, 32), dim=0)
pointer = [0]
{_ADAM}
""",
        """
ZERO(optimizer)
q = F.normalize(model(xb), dim=1)
with torch.no_grad():
    for p, k in zip(model.parameters(), key_model.parameters()):
        k.mul_(0.9).add_(p, alpha=0.1)
    keys = F.normalize(key_model(xb), dim=1)
logits = torch.cat([(q * keys).sum(1, keepdim=True), q @ queue.clone()], dim=1) / 0.2
loss = F.cross_entropy(logits, torch.zeros(len(xb), dtype=torch.long))
BACK(loss)
STEP(optimizer)
for row in keys:
    queue[:, pointer[0] % 32] = row
    pointer[0] += 1
""",
        uses=("import copy",),
    ),
    "byol": Recipe(
        _NET,
        f"""
model, predictor = Net(8, 6), nn.Linear(6, 6)
target = copy.deepcopy(model).requires_grad_(False)
{_ADAM.replace("model.parameters()", "[*model.parameters(), *predictor.parameters()]")}
""",
        """
ZERO(optimizer)
one, two = xb + 0.1 * torch.randn_like(xb), xb + 0.1 * torch.randn_like(xb)
with torch.no_grad():
    aim = F.normalize(target(two), dim=-1)
loss = 2 - 2 * (F.normalize(predictor(model(one)), dim=-1) * aim).sum(-1).mean()
BACK(loss)
STEP(optimizer)
with torch.no_grad():
    for t, p in zip(target.parameters(), model.parameters()):
        t.lerp_(p, 0.1)
""",
        ("model", "predictor"),
        uses=("import copy",),
    ),
    "vae": Recipe(
        """
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.logvar = nn.Linear(8, 16), nn.Linear(16, 3), nn.Linear(16, 3)
        self.dec = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 8))

    def encode(self, x):
        h = F.relu(self.enc(x))
        return self.mu(h), self.logvar(h)

    def reparameterize(self, mu, logvar):
        if not self.training:
            return mu
        return mu + torch.randn_like(mu) * (0.5 * logvar).exp()

    def forward(self, x):
        mu, logvar = self.encode(x)
        return self.dec(self.reparameterize(mu, logvar)), mu, logvar
""",
        f"model = VAE()\n{_ADAM}",
        _PLAIN.format(
            """
recon, mu, logvar = model(xb)
kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
loss = F.mse_loss(recon, xb) + 0.1 * kl
""".strip()
        ),
        scores="model(X_val)[0]",
    ),
    "mixup": Recipe(
        _NET,
        f"model = Net()\n{_ADAM}",
        _PLAIN.format(
            """
lam = float(np.random.beta(0.4, 0.4))
order = torch.randperm(len(xb))
out = model(lam * xb + (1 - lam) * xb[order])
loss = lam * F.cross_entropy(out, yb) + (1 - lam) * F.cross_entropy(out, yb[order])
""".strip()
        ),
        uses=("import numpy as np",),
    ),
    "diffusion": Recipe(
        """
class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Embedding(10, 16)
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x, t):
        return self.down(F.silu(self.up(x) + self.time(t)))
""",
        f"""
model = Denoiser()
alpha_bar = torch.cumprod(1 - torch.linspace(1e-2, 0.2, 10), 0)
{_ADAM}
""",
        _PLAIN.format(
            """
t = torch.randint(0, 10, (len(xb),))
noise = torch.randn_like(xb)
a = alpha_bar[t][:, None]
loss = F.mse_loss(model(a.sqrt() * xb + (1 - a).sqrt() * noise, t), noise)
""".strip()
        ),
        scores="model(X_val, torch.zeros(len(X_val), dtype=torch.long))",
    ),
    "maml": Recipe(
        _NET,
        f"model = Net()\n{_ADAM}",
        """
ZERO(optimizer)
half = max(len(xb) // 2, 1)
fast = dict(model.named_parameters())
inner = F.cross_entropy(torch.func.functional_call(model, fast, (xb[:half],)), yb[:half])
grads = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
fast = {name: p - 0.05 * g for (name, p), g in zip(fast.items(), grads)}
loss = F.cross_entropy(torch.func.functional_call(model, fast, (xb[-half:],)), yb[-half:])
BACK(loss)
STEP(optimizer)
""",
    ),
    "reinforce": Recipe(
        _NET,
        f"model = Net()\n{_ADAM}",
        """
ZERO(optimizer)
policy = torch.distributions.Categorical(logits=model(xb))
action = policy.sample()
reward = (action == yb).float()
loss = -(policy.log_prob(action) * (reward - reward.mean())).mean()
BACK(loss)
STEP(optimizer)
""",
    ),
    "actor_critic": Recipe(
        _NET,
        """
actor, critic = Net(8, 3), Net(8, 1)
opt_a = torch.optim.Adam(actor.parameters(), lr=0.01)
opt_c = torch.optim.Adam(critic.parameters(), lr=0.02)
""",
        """
dist = torch.distributions.Categorical(logits=actor(xb))
action = dist.sample()
reward = (action == yb).float()
value = critic(xb).squeeze(1)
advantage = (reward - value).detach()
ZERO(opt_c)
critic_loss = F.smooth_l1_loss(value, reward)
BACK(critic_loss)
STEP(opt_c)
ZERO(opt_a)
loss = -(dist.log_prob(action) * advantage).mean() - 0.01 * dist.entropy().mean()
BACK(loss)
STEP(opt_a)
""",
        ("actor", "critic"),
        "actor(X_val)",
    ),
    "dqn": Recipe(
        _NET,
        f"""
model = Net(8, 3)
target_net = Net(8, 3)
target_net.load_state_dict(model.state_dict())
memory = deque(maxlen=40)
{_ADAM}
""",
        """
memory.extend(zip(xb, yb))
batch = random.sample(list(memory), min(8, len(memory)))
s, a = torch.stack([row[0] for row in batch]), torch.stack([row[1] for row in batch])
ZERO(optimizer)
with torch.no_grad():
    aim = 1.0 + 0.9 * target_net(s.roll(1, 1)).max(1).values
loss = F.smooth_l1_loss(model(s).gather(1, a[:, None]).squeeze(1), aim)
BACK(loss)
STEP(optimizer)
if len(memory) >= 32:
    target_net.load_state_dict(model.state_dict())
""",
        uses=("from collections import deque", "import random"),
    ),
    "sam": Recipe(
        _NET,
        "model = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        """
ZERO(optimizer)
first = F.cross_entropy(model(xb), yb)
BACK(first)
with torch.no_grad():
    norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
    moves = [0.05 * p.grad / (norm + 1e-12) for p in model.parameters()]
    for p, e in zip(model.parameters(), moves):
        p.add_(e)
ZERO(optimizer)
loss = F.cross_entropy(model(xb), yb)
BACK(loss)
with torch.no_grad():
    for p, e in zip(model.parameters(), moves):
        p.sub_(e)
STEP(optimizer)
""",
    ),
    "lbfgs": Recipe(
        _NET,
        # larger steps double a difference of 1e-7 with each
        "model = Net()\noptimizer = torch.optim.LBFGS(model.parameters(), lr=0.02, max_iter=2, history_size=2)",
        """
def closure():
    ZERO(optimizer)
    inner = F.cross_entropy(model(xb), yb)
    BACK(inner)
    return inner

loss = optimizer.step(closure)
""",
    ),
    "distil": Recipe(
        _NET,
        f"model, teacher = Net(), Net(8, 3, 32).eval()\n{_ADAM}",
        _PLAIN.format(
            """
out = model(xb)
with torch.no_grad():
    soft = F.softmax(teacher(xb) / 2.0, dim=1)
loss = F.cross_entropy(out, yb) + 2.0 * F.kl_div(F.log_softmax(out / 2.0, 1), soft, reduction="batchmean")
""".strip()
        ),
    ),
    "multitask": Recipe(
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(DROPOUT))
        self.heads = nn.ModuleDict({"cls": nn.Linear(16, 3), "reg": nn.Linear(16, 1)})
        self.log_vars = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        h = self.body(x)
        return {name: head(h) for name, head in self.heads.items()}
""",
        f"model = Net()\n{_ADAM}",
        _PLAIN.format(
            """
out = model(xb)
parts = torch.stack([F.cross_entropy(out["cls"], yb), F.mse_loss(out["reg"].squeeze(1), xb.sum(1))])
loss = (parts * torch.exp(-model.log_vars) + model.log_vars).sum()
""".strip()
        ),
        scores='model(X_val)["cls"]',
    ),
    "masked": Recipe(
        _NET.replace("n_out=3", "n_out=8"),
        f"model = Net()\n{_ADAM}",
        _PLAIN.format(
            """
mask = torch.rand(xb.shape) < 0.3
out = model(xb.masked_fill(mask, 0.0))
loss = ((out - xb) ** 2)[mask].mean() if mask.any() else 0 * out.sum()
""".strip()
        ),
    ),
    "lstm": Recipe(
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(2, 12, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x, state=None):
        out, state = self.rnn(x.view(len(x), 4, 2), state)
        return self.head(out[:, -1]), state
""",
        f"model = Net()\n{_ADAM}",
        _PLAIN.format("out, hidden = model(xb)\nloss = F.cross_entropy(out, yb)"),
        scores="model(X_val)[0]",
    ),
    "tbptt": Recipe(
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(2, 12, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x, state=None):
        out, state = self.rnn(x.view(len(x), -1, 2), state)
        return self.head(out[:, -1]), state
""",
        f"model = Net()\n{_ADAM}",
        """
state = None
for part in xb.chunk(2, dim=1):
    ZERO(optimizer)
    out, state = model(part, state)
    loss = F.cross_entropy(out, yb)
    BACK(loss)
    STEP(optimizer)
    state = state.detach()
""",
        scores="model(X_val)[0]",
    ),
    "attention": Recipe(
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(2, 8)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=DROPOUT, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.encoder(self.embed(x.view(len(x), 4, 2))).mean(1))
""",
        f"model = Net()\n{_ADAM}",
        _PLAIN.format(_CE),
    ),
    "seq2seq": Recipe(
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.GRU(1, 12, batch_first=True), nn.GRUCell(1, 12)
        self.out = nn.Linear(12, 1)

    def forward(self, x, teach=0.5):
        _, h = self.enc(x.unsqueeze(-1))
        h, last, made = h[0], x[:, :1], []
        for t in range(x.shape[1]):
            h = self.dec(last, h)
            now = self.out(h)
            made.append(now)
            last = x[:, t : t + 1] if random.random() < teach else now
        return torch.cat(made, 1)
""",
        f"model = Net()\n{_ADAM}",
        _PLAIN.format("loss = F.mse_loss(model(xb, teach=0.7), xb)"),
        scores="model(X_val)",
        uses=("import random",),
    ),
    "memory_bank": Recipe(
        _NET,
        f"model = Net(8, 6)\nbank = torch.zeros(3, 6)\n{_ADAM}",
        """
ZERO(optimizer)
z = F.normalize(model(xb), dim=1)
loss = F.cross_entropy(z @ bank.T / 0.3, yb)
BACK(loss)
STEP(optimizer)
with torch.no_grad():
    for row, label in zip(z, yb):
        bank[label] = 0.9 * bank[label] + 0.1 * row
""",
    ),
    "centers": Recipe(
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head = nn.Linear(8, 6), nn.Linear(6, 3)
        self.register_buffer("centers", torch.zeros(3, 6))

    def forward(self, x, y=None):
        z = torch.tanh(self.fc(x))
        if y is None:
            return self.head(z)
        center_loss = (z - self.centers[y]).pow(2).sum(1).mean()
        if self.training:
            with torch.no_grad():
                for c in range(3):
                    if (y == c).any():
                        self.centers[c].lerp_(z[y == c].mean(0), 0.1)
        return self.head(z), center_loss
""",
        f"model = Net()\n{_ADAM}",
        _PLAIN.format(
            "out, center_loss = model(xb, yb)\nloss = F.cross_entropy(out, yb) + 0.05 * center_loss"
        ),
    ),
    "vq": Recipe(
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(8, 4), nn.Linear(4, 8)
        self.codes = nn.Embedding(6, 4)

    def forward(self, x):
        z = self.enc(x)
        index = torch.cdist(z, self.codes.weight).argmin(1)
        q = self.codes(index)
        commit = F.mse_loss(z, q.detach()) + F.mse_loss(q, z.detach())
        usage = torch.bincount(index, minlength=6)
        return self.dec(z + (q - z).detach()), commit, usage
""",
        f"model = Net()\nused = torch.zeros(6)\n{_ADAM}",
        _PLAIN.format(
            "recon, commit, usage = model(xb)\nused.add_(usage)\nloss = F.mse_loss(recon, xb) + 0.25 * commit"
        ),
        scores="model(X_val)[0]",
    ),
    "moe": Recipe(
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(8, 4)
        self.experts = nn.ModuleList(nn.Linear(8, 3) for _ in range(4))
        self.balance = torch.tensor(0.0)

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        top = probs.argmax(-1)
        out = torch.zeros(len(x), 3)
        for number, expert in enumerate(self.experts):
            chosen = top == number
            if chosen.any():
                out[chosen] = expert(x[chosen]) * probs[chosen, number, None]
        share = F.one_hot(top, 4).float().mean(0)
        self.balance = 4 * (share * probs.mean(0)).sum()
        return out
""",
        f"model = Net()\n{_ADAM}",
        _PLAIN.format("loss = F.cross_entropy(model(xb), yb) + 0.1 * model.balance"),
    ),
    "domain": Recipe(
        """
class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())
        self.label, self.domain = nn.Linear(16, 3), nn.Linear(16, 2)

    def forward(self, x):
        h = self.body(x)
        return self.label(h), self.domain(Reverse.apply(h))
""",
        f"model = Net()\n{_ADAM}",
        _PLAIN.format(
            """
here, there = model(xb), model(xb * 1.5 + 0.2)
sides = torch.cat([torch.zeros(len(xb)), torch.ones(len(xb))]).long()
loss = F.cross_entropy(here[0], yb) + 0.3 * F.cross_entropy(torch.cat([here[1], there[1]]), sides)
""".strip()
        ),
        scores="model(X_val)[0]",
    ),
    "hooks": Recipe(
        _NET,
        f"""
model = Net()
seen = {{}}
model.body.register_forward_hook(lambda module, given, out: seen.update(hidden=out))
{_ADAM}
""",
        _PLAIN.format('loss = F.cross_entropy(model(xb), yb) + 0.01 * seen["hidden"].pow(2).mean()'),
    ),
    "hard_examples": Recipe(
        _NET,
        f"model = Net()\n{_ADAM}",
        _PLAIN.format(
            """
losses = F.cross_entropy(model(xb), yb, reduction="none")
loss = losses.topk(max(len(losses) // 2, 1)).values.mean()
""".strip()
        ),
    ),
    "focal": Recipe(
        _NET
        + """

class FocalLoss(nn.Module):
    def __init__(self, gamma=2.0):
        super().__init__()
        self.gamma = gamma
        self.register_buffer("alpha", torch.tensor([1.0, 2.0, 0.5]))

    def forward(self, out, y):
        ce = F.cross_entropy(out, y, reduction="none", weight=self.alpha)
        return ((1 - torch.exp(-ce)) ** self.gamma * ce).mean()
""",
        f"model = Net()\nfocal = FocalLoss()\n{_ADAM}",
        _PLAIN.format("loss = focal(model(xb), yb)"),
    ),
    "arcface": Recipe(
        _NET
        + """

class ArcLoss(nn.Module):
    def __init__(self, dim=6, classes=3):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(classes, dim))

    def forward(self, z, y):
        cos = F.linear(F.normalize(z), F.normalize(self.weight)).clamp(-0.99, 0.99)
        margin = torch.cos(torch.acos(cos) + 0.2)
        hot = F.one_hot(y, 3).bool()
        return F.cross_entropy(8 * torch.where(hot, margin, cos), y)
""",
        """
model, criterion = Net(8, 6), ArcLoss()
optimizer = torch.optim.Adam([{"params": model.parameters()}, {"params": criterion.parameters(), "lr": 0.05}], lr=0.01)
""",
        _PLAIN.format("loss = criterion(model(xb), yb)"),
        ("model", "criterion"),
    ),
    "adversarial": Recipe(
        _NET,
        f"model = Net()\n{_ADAM}",
        """
adv = xb.clone().requires_grad_(True)
grad, = torch.autograd.grad(F.cross_entropy(model(adv), yb), adv)
adv = (adv + 0.1 * grad.sign()).detach()
ZERO(optimizer)
loss = 0.5 * F.cross_entropy(model(xb), yb) + 0.5 * F.cross_entropy(model(adv), yb)
BACK(loss)
STEP(optimizer)
""",
    ),
    "pinn": Recipe(
        _NET.replace("nn.ReLU()", "nn.Tanh()"),
        f"model = Net(1, 1)\n{_ADAM}",
        _PLAIN.format(
            """
t = xb[:, :1].clone().requires_grad_(True)
u = model(t)
du, = torch.autograd.grad(u, t, torch.ones_like(u), create_graph=True)
loss = (du + u).pow(2).mean() + (model(torch.zeros(1, 1)) - 1).pow(2).mean()
""".strip()
        ),
        scores="model(X_val[:, :1])",
    ),
    "graph": Recipe(
        """
class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 12), nn.Linear(12, 3)

    def forward(self, x, adj):
        return self.two(adj @ torch.relu(self.one(adj @ x)))
""",
        f"""
model = GCN()
adjacency = torch.softmax(X @ X.T, dim=1)
{_ADAM}
""",
        """
ZERO(optimizer)
rows = torch.arange(len(xb))
near = torch.softmax(xb @ xb.T, dim=1)
loss = F.cross_entropy(model(xb, near)[rows], yb)
BACK(loss)
STEP(optimizer)
""",
        scores="model(X_val, torch.eye(len(X_val)))",
    ),
    "frozen_batchnorm": Recipe(
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm, self.head = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.fc(x))))
""",
        f"model = Net()\n{_ADAM}",
        _PLAIN.format(_CE),
    ),
    "stochastic_depth": Recipe(
        """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x):
        x = self.inp(x)
        for layer in self.layers:
            if self.training and random.random() < 0.3:
                continue
            x = x + torch.relu(layer(x))
        return self.head(x)
""",
        f"model = Net()\n{_ADAM}",
        _PLAIN.format(_CE),
        uses=("import random",),
    ),
    "manual_sgd": Recipe(
        _NET,
        "model = Net()\nvelocity = [torch.zeros_like(p) for p in model.parameters()]",
        """
model.zero_grad()
loss = F.cross_entropy(model(xb), yb)
BACK(loss)
with torch.no_grad():
    for p, v in zip(model.parameters(), velocity):
        v.mul_(0.9).add_(p.grad)
        p.sub_(0.05 * v)
""",
    ),
}

# what keeps a number of each batch: code before the training, code of a batch, what is printed in the end
STATE = {
    "list": ("kept = []", "kept.append(loss.item())", "round(sum(kept), 3), len(kept)"),
    "closure": (
        "def make_meter():\n    total, count = 0.0, 0\n\n    def add(value, n=1):\n        nonlocal total, count\n"
        "        total, count = total + value * n, count + n\n        return total / count\n\n    return add\n\n\nmeter = make_meter()",
        "average = meter(loss.item(), len(xb))",
        "round(meter(0.0, 0), 4)",
    ),
    "attribute": ("first.seen = 0", "first.seen += len(xb)", "first.seen"),
    "queue": (
        "recent = queue.Queue(maxsize=4)",
        "if recent.full():\n    recent.get()\nrecent.put(loss.item())",
        "round(sum(recent.queue), 4)",
    ),
    "iterator": (
        "weights = itertools.cycle([1.0, 0.5, 2.0])\nseen_weights = []",
        "seen_weights.append(next(weights))",
        "sum(seen_weights)",
    ),
    "function_attribute": (
        "def note(value):\n    note.calls += 1\n    note.total += value\n\n\nnote.calls, note.total = 0, 0.0",
        "note(loss.item())",
        "note.calls, round(note.total, 3)",
    ),
    "defaultdict": (
        "stats = defaultdict(list)",
        'stats["loss"].append(loss.item())\nstats["rows"].append(len(xb))',
        'round(sum(stats["loss"]), 3), sum(stats["rows"])',
    ),
    "per_class": (
        "seen_classes = torch.zeros(3)",
        "seen_classes.add_(torch.bincount(yb, minlength=3))",
        "seen_classes.tolist()",
    ),
    "file": ("", 'with open("losses.txt", "a") as fh:\n    fh.write(f"{loss.item():.5f}\\n")', '"written"'),
    "generator": (
        "def smoother():\n    value = None\n    while True:\n        new = yield value\n"
        "        value = new if value is None else 0.9 * value + 0.1 * new\n\n\nsmooth = smoother()\nnext(smooth)\nsmoothed = []",
        "smoothed.append(smooth.send(loss.item()))",
        "round(smoothed[-1], 4)",
    ),
}
STATE_USES = {
    "queue": "import queue",
    "iterator": "import itertools",
    "defaultdict": "from collections import defaultdict",
}
