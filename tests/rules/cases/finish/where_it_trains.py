# The other ranks end after the last training, wherever it stands.

# case: a trainer called t
from trl import SFTTrainer as S
t = S(llm)
t.train()
# save
model.save_pretrained("lora")
# output
from trl import SFTTrainer as S
t = S(llm)
t.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: through the module
import trl
t = trl.SFTTrainer(llm)
t.train()
# save
model.save_pretrained("lora")
# output
import trl
t = trl.SFTTrainer(llm)
t.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: star import
from trl import *
t = SFTTrainer(llm)
t.train()
# save
model.save_pretrained("lora")
# output
from trl import *
t = SFTTrainer(llm)
t.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: responses only
from unsloth.chat_templates import train_on_responses_only
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer = train_on_responses_only(trainer, response_part="a")
trainer.train()
# save
model.save_pretrained("lora")
# output
from unsloth.chat_templates import train_on_responses_only
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer = train_on_responses_only(trainer, response_part="a")
trainer.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: a subclass
from trl import SFTTrainer
class Mine(SFTTrainer):
    pass
t = Mine(llm)
t.train()
# save
model.save_pretrained("lora")
# output
from trl import SFTTrainer
class Mine(SFTTrainer):
    pass
t = Mine(llm)
t.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: a subclass of a subclass
from transformers import Trainer
class A(Trainer):
    pass
class B(A):
    pass
t = B(llm)
t.train()
# save
model.save_pretrained("lora")
# output
from transformers import Trainer
class A(Trainer):
    pass
class B(A):
    pass
t = B(llm)
t.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: unsloth_train
from unsloth import unsloth_train
from trl import SFTTrainer
trainer = SFTTrainer(model)
unsloth_train(trainer)
# save
model.save_pretrained("lora")
# output
from unsloth import unsloth_train
from trl import SFTTrainer
trainer = SFTTrainer(model)
unsloth_train(trainer)
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: in a with block
from trl import SFTTrainer
trainer = SFTTrainer(model)
with profiler:
    trainer.train()
    y = 1
# save
model.save_pretrained("lora")
# output
from trl import SFTTrainer
trainer = SFTTrainer(model)
with profiler:
    trainer.train()
    y = 1
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: in a try
from trl import SFTTrainer
trainer = SFTTrainer(model)
try:
    trainer.train()
except KeyboardInterrupt:
    pass
# save
model.save_pretrained("lora")
# output
from trl import SFTTrainer
trainer = SFTTrainer(model)
try:
    trainer.train()
except KeyboardInterrupt:
    pass
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: in a for loop
from trl import SFTTrainer
trainer = SFTTrainer(model)
for seed in seeds:
    trainer.train()
# save
model.save_pretrained("lora")
# output
from trl import SFTTrainer
trainer = SFTTrainer(model)
for seed in seeds:
    trainer.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: under a main guard
if __name__ == '__main__':
    from trl import SFTTrainer
    trainer = SFTTrainer(model)
    trainer.train()
# save
model.save_pretrained("lora")
# output
if __name__ == '__main__':
    from trl import SFTTrainer
    trainer = SFTTrainer(model)
    trainer.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: in a function
from trl import SFTTrainer
def go():
    SFTTrainer(llm).train()
go()
# save
model.save_pretrained("lora")
# output
from trl import SFTTrainer
def go():
    SFTTrainer(llm).train()
go()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: in a function of a function
from trl import SFTTrainer
def run(t):
    t = SFTTrainer(llm)
    t.train()
def go():
    run(1)
go()
# save
model.save_pretrained("lora")
# output
from trl import SFTTrainer
def run(t):
    t = SFTTrainer(llm)
    t.train()
def go():
    run(1)
go()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: evaluated at the end
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
metrics = trainer.evaluate()
# save
model.save_pretrained("lora")
# output
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
metrics = trainer.evaluate()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: evaluated only
from trl import SFTTrainer
trainer = SFTTrainer(model)
if final:
    trainer.evaluate()
# save
model.save_pretrained("lora")
# output
from trl import SFTTrainer
trainer = SFTTrainer(model)
if final:
    trainer.evaluate()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: predictions at the end
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
predictions = trainer.predict(test)
# save
model.save_pretrained("lora")
# output
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
predictions = trainer.predict(test)
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: a search
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.hyperparameter_search()
# save
model.save_pretrained("lora")
# output
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.hyperparameter_search()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: two trainers
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
second = SFTTrainer(model)
second.train()
# save
model.save_pretrained("lora")
# output
from trl import SFTTrainer
trainer = SFTTrainer(model)
trainer.train()
second = SFTTrainer(model)
second.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")

# case: a loop by hand
from torch.utils.data import DataLoader
for batch in DataLoader(data):
    loss = model(batch).loss
    loss.backward()
# save
model.save_pretrained("lora")
# output
from torch.utils.data import DataLoader
for batch in DataLoader(data):
    loss = model(batch).loss
    loss.backward()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# save
model.save_pretrained("lora")
