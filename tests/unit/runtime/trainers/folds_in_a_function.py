# same: a Trainer, its model and its optimizer end with the function that made them
import gc, weakref
gc.disable()
rows = cls_rows(48)
def fold(number):
    net = bert()
    trainer = Trainer(net, args(max_steps=2), train_dataset=rows[number:], eval_dataset=rows[:8])
    ddp.init_process_group()
    model = ddp.wrap_trainer(trainer)
    trainer.train()
    ddp.check_replicas(model)
    kept[f"loss {number}"] = trainer.evaluate()["eval_loss"]
    return weakref.ref(net), weakref.ref(trainer), weakref.ref(trainer.optimizer), weakref.ref(net.classifier.weight)
for number in range(2):
    kept[f"gone {number}"] = [float(of() is None) for of in fold(number)]
go(Trainer(bert(), args(max_steps=2), train_dataset=rows))
