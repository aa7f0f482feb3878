# same: generators of the notebook's own classes, with attributes, that a collator and compute_loss draw from
class Coin(random.Random):
    flips = 0
    def flip(self):
        self.flips += 1
        return self.random() < 0.5
class Normal(np.random.Generator):
    draws = 0
    def draw(self):
        self.draws += 1
        return float(self.normal())
coin, normal = Coin(3), Normal(np.random.PCG64(4))
def collate(rows):
    out = {name: torch.as_tensor(np.array([row[name] for row in rows])) for name in rows[0]}
    return {name: of.flip(0) for name, of in out.items()} if coin.flip() else out
class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **k):
        out = model(**inputs)
        loss = out.loss * (1.5 if coin.flip() else 0.5) * (1 + normal.draw() / 10)
        return (loss, out) if return_outputs else loss
sizes = dict(per_device_train_batch_size=8, gradient_accumulation_steps=1)
t = Own(bert(), args(**sizes, max_steps=10), train_dataset=cls_rows(96), data_collator=collate)
ddp.init_process_group()
ddp.wrap_trainer(t)
t.train()
kept["counts"] = [coin.flips, normal.draws]
ddp.check_replicas(t.model)
done(t)
