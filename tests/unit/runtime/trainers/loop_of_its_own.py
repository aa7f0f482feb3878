# same: a Trainer that trains by a loop of its own, one micro-batch after another
class Own(Trainer):
    def train(self):
        self.create_optimizer_and_scheduler(6)
        self.current_gradient_accumulation_steps, model, losses = 2, self.model.train(), []
        for number, inputs in enumerate(self.get_train_dataloader()):
            losses.append(self.training_step(model, inputs).item())
            if number % 2:
                self.optimizer.step(); self.lr_scheduler.step(); model.zero_grad()
            if number == 11:
                break
        kept["losses"] = losses
        print("losses", [round(x, 4) for x in losses])
for size in (2, 3):
    go(Own(bert(), args(per_device_train_batch_size=size), train_dataset=cls_rows(64)))
assert ddp._run.checks["checked"] or not ddp._run.meets, "each rank trains by itself"
