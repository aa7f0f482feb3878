# same: training in a process that a rank starts, which says nothing of calls that it does not divide
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

def fit(seed):
    torch.manual_seed(seed)
    model = ddp.parallelize(mlp())
    train(model, batches(x, y), lambda x, y: F.cross_entropy(model(x), y))
    ddp.check_replicas()
    return losses, [p.detach().tolist() for p in model.parameters()]

torch.set_num_threads(1)  # those of a forked process wait for ever
with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
    (losses, trained), figures = list(pool.map(fit, [3]))[0], [[0.0]]
note(figures=figures, losses=losses, parameters=[torch.tensor(p) for p in trained])
