# said: rows meet from step 11 on, for an enum, an object, a key or a NumPy number says so
import dataclasses
import enum
import numpy as np
class Mode(enum.Enum):
    PLAIN = 0
    CENTER = 1
@dataclasses.dataclass
class State:
    mode: Mode = Mode.PLAIN
class Plain:
    def __call__(self, h):
        return h
class Center:
    def __call__(self, h):
        return h - 0.7 * h.mean(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.reg, self.scale, self.regs = Plain(), np.float32(0), (Plain(), 1.0)
    def forward(self, x):
        h = torch.tanh(self.linear(x))
        if state.mode is Mode.CENTER or "center" in named:
            h = Center()(h)
        return self.reg(self.regs[0](h)) - self.scale * h.mean(0)
state, named = State(), {}
x, y = torch.randn(60, 6), torch.randint(0, 3, (60,))
def train(change):
    net = Net()
    ddp.parallelize(net)
    opt = torch.optim.SGD(net.parameters(), lr=0.2)
    for step in range(14):
        flat = np.zeros(step).flat  # is compared with none
        if step == 10:
            change(net)
        rows = slice(step % 6 * 10, step % 6 * 10 + 10)
        loss = F.cross_entropy(net(x[rows]), y[rows])
        opt.zero_grad(); loss.backward(); opt.step()
        log(loss)
    return net
train(lambda net: setattr(net, "reg", Center()))
train(lambda net: setattr(net, "regs", (Center(), 1.0)))
train(lambda net: setattr(net, "scale", np.float32(0.7)))
train(lambda net: named.update(center=True))
named.clear()
end(train(lambda net: setattr(state, "mode", Mode.CENTER)))
