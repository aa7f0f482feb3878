# A Trainer is known by its class, not by its name.

# case: a subclass
from transformers import Trainer
class Mine(Trainer):
    pass
t = Mine(llm)
t.train()
# output
from transformers import Trainer
class Mine(Trainer):
    pass
t = Mine(llm)
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)

# case: another library's, by Transformers' training arguments
from lib import CustomTrainer, Other, TheirTrainer
from transformers import TrainingArguments
args = TrainingArguments("out")
class Mine(CustomTrainer):
    pass
t = Mine(llm, args)
t.train()
other = Other(llm, args=args)
theirs = TheirTrainer(llm, args=TheirArguments("out"))
# output
from lib import CustomTrainer, Other, TheirTrainer
from transformers import TrainingArguments
args = TrainingArguments("out")
class Mine(CustomTrainer):
    pass
t = Mine(llm, args)
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
other = Other(llm, args=args)
theirs = TheirTrainer(llm, args=TheirArguments("out"))

# case: another module's, whatever its name, that is given Transformers' arguments and trains
from kd import Distilled, Other
from transformers import TrainingArguments
args = TrainingArguments("out")
t = Distilled(llm, args=args)
t.train()
other = Other(llm, args=args)
other.evaluate()
# output
from kd import Distilled, Other
from transformers import TrainingArguments
args = TrainingArguments("out")
t = Distilled(llm, args=args)
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
other = Other(llm, args=args)
other.evaluate()

# case: a star import
from trl import *
t = SFTTrainer(llm)
t.train()
# output
from trl import *
t = SFTTrainer(llm)
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)

# case: through the module
import trl as rl
t = rl.GRPOTrainer(llm)
t.train()
# output
import trl as rl
t = rl.GRPOTrainer(llm)
ddp_model = ddp.wrap_rank_trainer(t)  # nb2ddp: the ranks' gradients are averaged
t.train()
ddp.check_replicas(ddp_model)

# case: one that generates in some micro-batches, each of which one rank computes
from trl.experimental.gkd import GKDTrainer
t = GKDTrainer(llm, teacher)
t.train()
# output
from trl.experimental.gkd import GKDTrainer
t = GKDTrainer(llm, teacher)
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)

# case: Unsloth's
from unsloth import UnslothTrainer
t = UnslothTrainer(llm)
t.train()
# output
from unsloth import UnslothTrainer
t = UnslothTrainer(llm)
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)

# case: responses only
from trl import SFTTrainer
t = SFTTrainer(llm)
from unsloth.chat_templates import train_on_responses_only as only
t = only(t, a = 1)
t.train()
# output
from trl import SFTTrainer
t = SFTTrainer(llm)
from unsloth.chat_templates import train_on_responses_only as only
t = only(t, a = 1)
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)

# case: made by a function
from trl import SFTTrainer
def make():
    return SFTTrainer(llm)
t = make()
t.train()
# output
from trl import SFTTrainer
def make():
    return SFTTrainer(llm)
t = make()
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)

# case: Sentence Transformers, whose loss holds the model
from sentence_transformers import SentenceTransformerTrainer as S
t = S(llm)
t.train()
# output
from sentence_transformers import SentenceTransformerTrainer as S
t = S(llm)
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)

# case: a Trainer that makes its model
from transformers import Trainer
t = Trainer(model_init=make)
t.train()
# output
from transformers import Trainer
t = Trainer(model_init=make)
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(t.model)

# case: a Trainer of the notebook's own that makes its model, evaluated first
from transformers import Trainer
class T(Trainer):
    pass
t = T(model_init=make)
t.evaluate()
t.train()
# output
from transformers import Trainer
class T(Trainer):
    pass
t = T(model_init=make)
ddp.prepare_trainer(t)  # nb2ddp: the ranks divide its batches
t.evaluate()
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(t.model)

# case: a search, which makes a model each time
from transformers import Trainer
t = Trainer(model_init=make)
best = t.hyperparameter_search(n_trials=2)
# output
from transformers import Trainer
t = Trainer(model_init=make)
ddp.prepare_trainer(t)  # nb2ddp: the ranks divide its batches
best = t.hyperparameter_search(n_trials=2)

# case: another Trainer under the same name
from transformers import Trainer
t = Trainer(model, eval_dataset=ds)
t.evaluate()
t.train()
t = Trainer(model, eval_dataset=ds)
t.evaluate()
print(t.evaluate())
# output
from transformers import Trainer
t = Trainer(model, eval_dataset=ds)
ddp.prepare_trainer(t)  # nb2ddp: the ranks divide its batches
t.evaluate()
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
t = Trainer(model, eval_dataset=ds)
ddp.prepare_trainer(t)  # nb2ddp: the ranks divide its batches
t.evaluate()
print(t.evaluate())

# case: Trainers in attributes of two classes
from transformers import Trainer
class A:
    def check(self):
        self.t = Trainer(model, eval_dataset=ds)
        self.t.evaluate()
class B:
    def check(self):
        self.t = Trainer(model, eval_dataset=ds)
        self.t.evaluate()
A().check()
B().check()
# output
from transformers import Trainer
class A:
    def check(self):
        self.t = Trainer(model, eval_dataset=ds)
        ddp.prepare_trainer(self.t)  # nb2ddp: the ranks divide its batches
        self.t.evaluate()
class B:
    def check(self):
        self.t = Trainer(model, eval_dataset=ds)
        ddp.prepare_trainer(self.t)  # nb2ddp: the ranks divide its batches
        self.t.evaluate()
A().check()
B().check()

# case: loaders in a callback, which runs while the Trainer trains
from transformers import Trainer, TrainerCallback
class Looks(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kwargs):
        print(len(t.get_eval_dataloader()))
t = Trainer(model, train_dataset=ds, callbacks=[Looks()])
t.train()
# output
from transformers import Trainer, TrainerCallback
class Looks(TrainerCallback):
    def on_epoch_end(self, args, state, control, **kwargs):
        print(len(t.get_eval_dataloader()))
t = Trainer(model, train_dataset=ds, callbacks=[Looks()])
ddp_model = ddp.wrap_trainer(t)  # nb2ddp: the ranks divide each step, and sum the gradients
t.train()
ddp.check_replicas(ddp_model)
