# What a Trainer's micro-batch reads of those before it in its step.

# case: a gradient
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def training_step(self, model, inputs, **options):
        loss = super().training_step(model, inputs, **options)
        print(model.head.weight.grad.norm())
        return loss
t = Mine(model)
t.train()
# answer: the gradients

# case: a norm that clips
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def training_step(self, model, inputs, **options):
        loss = super().training_step(model, inputs, **options)
        self.accelerator.clip_grad_norm_(model.parameters(), 1)
        return loss
t = Mine(model)
t.train()
# answer: the gradients

# case: a queue
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        seen.append(loss.item()); loss = loss * sum(seen)
        return loss
t = Mine(model)
t.train()
# answer: seen

# case: an item that is taken
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        loss = loss * self.waiting.pop()
        return loss
t = Mine(model)
t.train()
# answer: self.waiting

# case: a slot that is set, then read
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        loss = loss + rows.get(1, 0); rows[1] = 2
        return loss
t = Mine(model)
t.train()
# answer: rows

# case: in another function
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        loss = self.more(loss)
        return loss
    def more(self, x):
        self.n += x
        self.n + 1
        return loss
t = Mine(model)
t.train()
# answer: self.n

# case: a gradient that is asked for
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        g = torch.autograd.grad(loss, inputs)
        return loss
t = Mine(model)
t.train()
# answer: nothing

# case: gradients that are dropped
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def training_step(self, model, inputs, **options):
        loss = super().training_step(model, inputs, **options)
        model.head.weight.grad = None
        return loss
t = Mine(model)
t.train()
# answer: nothing

# case: a counter
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        self.n += 1
        if self.n % 5 == 0: print(self.n)
        return loss
t = Mine(model)
t.train()
# answer: nothing

# case: what is set before
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        self.last = loss.item(); print(self.last)
        return loss
t = Mine(model)
t.train()
# answer: nothing

# case: what is made once
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        if self.w is None: self.w = 2
        loss = loss * self.w
        return loss
t = Mine(model)
t.train()
# answer: nothing

# case: a moving average
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        self.mean = 0.9 * self.mean + 0.1 * loss.item()
        return loss
t = Mine(model)
t.train()
# answer: nothing

# case: figures that only grow
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        self.figures['loss'].append(loss.item())
        return loss
t = Mine(model)
t.train()
# answer: nothing

# case: a name of its own
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        rows = []; rows.append(loss); loss = sum(rows)
        return loss
t = Mine(model)
t.train()
# answer: nothing

# case: an object that is kept
class Focal:
    def __init__(self, gamma): self.seen = [gamma]
    def forward(self, loss):
        self.seen.append(loss)
        return loss * sum(self.seen)
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        if self.kept is None: self.kept = Focal(2)
        return self.kept(loss)
        return loss
t = Mine(model)
t.train()
# answer: self.seen

# case: an object that a dict keeps
class Focal:
    def __init__(self, gamma): self.seen = [gamma]
    def forward(self, loss):
        self.seen.append(loss)
        return loss * sum(self.seen)
from transformers import Trainer
from collections import deque
seen, rows = deque(maxlen=8), {}
class Mine(Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        loss_of = Focal(2)
        return rows.setdefault(0, loss_of)(loss)
        return loss
t = Mine(model)
t.train()
# answer: self.seen
# answer: rows

# case: a callback between micro-batches
class Looks(TrainerCallback):
    def on_substep_end(self, args, state, control, model=None, **options):
        print(model.w.grad)
# answer: the gradients
