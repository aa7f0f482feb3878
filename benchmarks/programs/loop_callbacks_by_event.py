# stopped: the ranks have trained different models, for some loaded an older checkpoint
# callbacks of the notebook's own, called by the name of an event

# %%
import torch, numpy as np, os, json, random, pandas as pd, time, gc, copy
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, Dataset
random.seed(0); np.random.seed(0); torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
# %%
from types import SimpleNamespace
from abc import ABC, abstractmethod
cfg = SimpleNamespace(epochs=3, lr=1e-2, bs=8, patience=1, out='out'); os.makedirs(cfg.out, exist_ok=True)
class Callback(ABC):
    def on_train_begin(self, t): pass
    def on_epoch_end(self, t, logs): pass
class CSVLog(Callback):
    def on_train_begin(self, t): self.rows = []
    def on_epoch_end(self, t, logs): self.rows.append(dict(logs)); pd.DataFrame(self.rows).to_csv(f'{cfg.out}/log.csv', index=False)
class Checkpoint(Callback):
    def __init__(self, monitor): self.monitor, self.best = monitor, float('inf')
    def on_epoch_end(self, t, logs):
        if logs[self.monitor] < self.best:
            self.best = logs[self.monitor]; torch.save(t.model.state_dict(), os.path.join(cfg.out, 'best.pt')); print('saved', round(self.best, 5))
class Early(Callback):
    def __init__(self, p): self.p, self.n, self.best = p, 0, float('inf')
    def on_epoch_end(self, t, logs):
        if logs['val'] < self.best: self.best = logs['val']; self.n = 0
        else:
            self.n += 1
            if self.n > self.p: t.stop = True
class T:
    def __init__(self, model, opt, cbs): self.model, self.opt, self.cbs, self.stop = model, opt, cbs, False
    def fire(self, name, *a):
        for c in self.cbs: getattr(c, name)(self, *a)
    def fit(self, tl, vl):
        self.fire('on_train_begin')
        for ep in range(cfg.epochs):
            tot = 0.; self.model.train()
            for x, y in tl:
                l = F.mse_loss(self.model(x), y); self.opt.zero_grad(); l.backward(); self.opt.step(); tot += l.item()
            self.model.eval()
            with torch.no_grad(): v = sum(F.mse_loss(self.model(x), y).item() for x, y in vl) / len(vl)
            self.fire('on_epoch_end', {'epoch': ep, 'train': tot / len(tl), 'val': v})
            if self.stop: break
        self.model.load_state_dict(torch.load(os.path.join(cfg.out, 'best.pt')))
X = torch.randn(48, 5); y = X.sum(1, keepdim=True)
m = nn.Sequential(nn.Linear(5, 8), nn.Dropout(.1), nn.ReLU(), nn.Linear(8, 1))
t = T(m, torch.optim.Adam(m.parameters(), cfg.lr), [CSVLog(), Checkpoint('val'), Early(cfg.patience)])
t.fit(DataLoader(TensorDataset(X[:36], y[:36]), cfg.bs, shuffle=True), DataLoader(TensorDataset(X[36:], y[36:]), 6))
with torch.no_grad(): print(F.mse_loss(t.model(X), y).item()); print(pd.read_csv(f'{cfg.out}/log.csv').round(4).to_dict('list'))
