# What trains in a thread of the process is declined: the ranks' exchanges follow one another in one thread.

# first cell
import threading
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
import joblib, torch
from joblib import Parallel, delayed
def train(seed=0):
    model = make(seed)
    optimizer = torch.optim.SGD(model.parameters())
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
    return model

# case: a thread
thread = threading.Thread(target=train)
thread.start()
# decline, line 1: `train` trains in a thread here, and what ranks exchange ... Call it without a thread...

# case: a pool of threads
with ThreadPoolExecutor(2) as pool:
    models = list(pool.map(train, [1, 2]))
# decline, line 2: `train` trains in a thread here...

# case: a pool of threads that has a name, given a lambda
pool = ThreadPoolExecutor(2)
futures = [pool.submit(lambda: train(seed)) for seed in (1, 2)]
other = ThreadPool(2).map(train, [1, 2])
# decline, line 2: `train` trains in a thread here...
# decline, line 3: `train` trains in a thread here...

# case: a Trainer
from trl import SFTTrainer
def fit(rows):
    trainer = SFTTrainer(model, train_dataset=rows)
    trainer.train()
threading.Thread(target=fit, args=(rows,)).start()
# decline, line 5: `fit` trains in a thread here...

# case: joblib with threads
models = Parallel(n_jobs=2, prefer="threads")(delayed(train)(seed) for seed in (1, 2))
# decline, line 1: `train` trains in a thread here...

# case: joblib, told by a context
with joblib.parallel_config(backend="threading"):
    models = Parallel(n_jobs=2)(delayed(train)(seed) for seed in (1, 2))
# decline, line 2: `train` trains in a thread here...
