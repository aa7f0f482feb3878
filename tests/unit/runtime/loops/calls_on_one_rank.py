# same: calls without gradients that one rank alone makes, or another thread
import threading
ddp._Split.worth = 0.0
model, shown = ddp.parallelize(mlp()), []
def show(value):
    if not ddp.is_main_process:
        return
    with torch.no_grad():
        shown.append(float(model(value).sum()))
def of_one_rank():
    if rank == 1:
        with torch.no_grad():
            model(x)
def train_and_show():
    train(model, batches(x, y), lambda a, b: F.cross_entropy(model(a), b))
    show(x)
    with torch.no_grad():
        with ddp.main_process_only() as is_main:
            if is_main:
                shown.append(float(model(x).sum()))
        if ddp.is_main_process:
            for _ in range(3):
                shown.append(float(model(x).sum()))
        else:
            pass
        losses.append(float(model(x).sum()))
    thread = threading.Thread(target=of_one_rank)
    thread.start()
    thread.join()
train_and_show()
train_and_show()
if ddp.is_main_process:
    print("shown", [f"{value:.4f}" for value in shown])
shown.clear()
end(model)
