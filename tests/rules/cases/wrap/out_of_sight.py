# Trainers in containers, and ones whose class a name, a table or an argument gives, where no other training is found.

# first cell
from transformers import AutoModel, Trainer
llm = AutoModel.from_pretrained("m")

# case: a list of Trainers
trainers = [Trainer(llm), Trainer(llm)]
for each in trainers: print(each.train().training_loss)
# output
trainers = [Trainer(llm), Trainer(llm)]
for each in trainers:
    ddp_model = ddp.wrap_trainer(each)  # nb2ddp: the ranks divide each step, and sum the gradients
    print(each.train().training_loss)
    ddp.check_replicas(ddp_model)

# case: a Trainer of the notebook's own that trains itself
class Mine(Trainer):
    def run(self):
        self.train()
        return self.state.log_history
Mine(llm).run()
# output
class Mine(Trainer):
    def run(self):
        ddp_model = ddp.wrap_trainer(self)  # nb2ddp: the ranks divide each step, and sum the gradients
        self.train()
        ddp.check_replicas(ddp_model)
        return self.state.log_history
Mine(llm).run()

# case: an item
trainers = {}
trainers["a"] = Trainer(llm)
print(trainers["a"].train().training_loss)
# output
trainers = {}
trainers["a"] = Trainer(llm)
ddp_model = ddp.wrap_trainer(trainers["a"])  # nb2ddp: the ranks divide each step, and sum the gradients
print(trainers["a"].train().training_loss)
ddp.check_replicas(ddp_model)

# case: a function that makes two things
def build():
    return llm, Trainer(llm)
model, t = build()
t.train()
# output
def build():
    return llm, Trainer(llm)
model, t = build()
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)

# case: a class that a table gives
for kind in {"plain": Trainer}.values():
    t = kind(model=llm, train_dataset=rows)
    t.train()
# output
for kind in {"plain": Trainer}.values():
    t = kind(model=llm, train_dataset=rows)
    ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
    t.train()
    ddp.check_replicas(ddp_model)

# case: its line makes it, too
t = Trainer(llm); print(t.train().training_loss)
# output
t = Trainer(llm)
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
print(t.train().training_loss)
ddp.check_replicas(ddp_model)

# case: a comprehension whose name is another Trainer's
each = Trainer(llm)
[each.train() for each in [Trainer(llm), Trainer(llm)]]
# decline, line 2: this Trainer has no name; assign it to a variable on a line of its own
