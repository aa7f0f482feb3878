# declined: nb2ddp sees no model that this backward() trains
# a Learner that is given the optimizer's class, with early stopping and a log file

# %%
import numpy as np, torch, json, os, logging, sys
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
logging.basicConfig(level=logging.INFO, format='%(message)s', handlers=[logging.FileHandler('run.log', mode='w'), logging.StreamHandler(sys.stdout)])
log = logging.getLogger('learner')
torch.manual_seed(5); np.random.seed(5)
# %%
class EarlyStopping:
    """Early stops the training if validation loss doesn't improve after a given patience."""
    def __init__(self, patience=7, verbose=False, delta=0, path='checkpoint.pt', trace_func=print):
        self.patience = patience; self.verbose = verbose; self.counter = 0
        self.best_score = None; self.early_stop = False; self.val_loss_min = np.inf
        self.delta = delta; self.path = path; self.trace_func = trace_func
    def __call__(self, val_loss, model):
        score = -val_loss
        if self.best_score is None:
            self.best_score = score
            self.save_checkpoint(val_loss, model)
        elif score < self.best_score + self.delta:
            self.counter += 1
            self.trace_func(f'EarlyStopping counter: {self.counter} out of {self.patience}')
            if self.counter >= self.patience:
                self.early_stop = True
        else:
            self.best_score = score
            self.save_checkpoint(val_loss, model)
            self.counter = 0
    def save_checkpoint(self, val_loss, model):
        if self.verbose:
            self.trace_func(f'Validation loss decreased ({self.val_loss_min:.6f} --> {val_loss:.6f}).  Saving model ...')
        torch.save(model.state_dict(), self.path)
        self.val_loss_min = val_loss
class Callback:
    def on_epoch_end(self, learn): pass
    def on_batch_end(self, learn): pass
class Recorder(Callback):
    def __init__(self): self.rows = []
    def on_batch_end(self, learn): self.rows.append(learn.loss.item())
    def on_epoch_end(self, learn): log.info(f'recorder {np.mean(self.rows[-len(learn.dls[0]):]):.5f}')
class Learner:
    def __init__(self, model, dls, loss_func, opt_func=torch.optim.Adam, lr=1e-2, metrics=(), cbs=()):
        self.model, self.dls, self.loss_func, self.metrics, self.cbs = model, dls, loss_func, metrics, list(cbs)
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        self.model.to(self.device)
        self.opt = opt_func(self.model.parameters(), lr=lr)
        self.stopper = EarlyStopping(patience=2, verbose=True, path='learner_best.pt')
        self.history = []
    def one_batch(self, xb, yb, train):
        xb, yb = xb.to(self.device), yb.to(self.device)
        self.preds = self.model(xb)
        self.loss = self.loss_func(self.preds, yb)
        if train:
            self.loss.backward()
            self.opt.step()
            self.opt.zero_grad()
            for cb in self.cbs: cb.on_batch_end(self)
        return self.loss.item() * len(xb), [m(self.preds, yb).item() * len(xb) for m in self.metrics]
    def one_epoch(self, train):
        self.model.train(train)
        dl = self.dls[0 if train else 1]
        tot, n, ms = 0., 0, np.zeros(len(self.metrics))
        with torch.set_grad_enabled(train):
            for xb, yb in dl:
                l, m = self.one_batch(xb, yb, train)
                tot += l; n += len(xb); ms += np.array(m)
        return tot / n, (ms / n).tolist()
    def fit(self, n_epochs):
        for self.epoch in range(n_epochs):
            tl, tm = self.one_epoch(True)
            vl, vm = self.one_epoch(False)
            for cb in self.cbs: cb.on_epoch_end(self)
            self.history.append(dict(epoch=self.epoch, train=tl, valid=vl, metrics=vm))
            log.info(f'{self.epoch} {tl:.5f} {vl:.5f} {vm}')
            self.stopper(vl, self.model)
            if self.stopper.early_stop:
                print('Early stopping'); break
        self.model.load_state_dict(torch.load('learner_best.pt'))
        return self
def accuracy(p, y): return (p.argmax(-1) == y).float().mean()
# %%
X = torch.randn(66, 7); y = (X[:, 0] * X[:, 1] > 0).long()
ds = TensorDataset(X, y)
trn, val = random_split(ds, [50, 16], generator=torch.Generator().manual_seed(0))
dls = DataLoader(trn, 8, shuffle=True), DataLoader(val, 8)
learn = Learner(nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, 2)), dls, nn.CrossEntropyLoss(), lr=5e-2, metrics=[accuracy], cbs=[Recorder()])
learn.fit(6)
json.dump(learn.history, open('history.json', 'w'))
print(len(learn.history), learn.history[-1])
