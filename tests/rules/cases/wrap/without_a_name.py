# A Trainer that is used without a name gets one; all rules look at the code again then (see whole_script).

# first cell
import trl
from transformers import Trainer
from trl import SFTTrainer
from unsloth import unsloth_train

# case: a statement
SFTTrainer(llm).train()
# output
trainer = SFTTrainer(llm)
trainer.train()

# case: an assignment over several lines, with comments and an argument of train()
# above
result = SFTTrainer(
    model=llm,  # the model
    args=args,
).train(resume_from_checkpoint=True)  # behind
# below
# output
# above
trainer = SFTTrainer(
    model=llm,  # the model
    args=args,
)
result = trainer.train(resume_from_checkpoint=True)  # behind
# below

# case: names that the notebook has
trainer = trainer_2 = None
for trainer_3 in (1, 2):
    SFTTrainer(llm).train()
# output
trainer = trainer_2 = None
for trainer_3 in (1, 2):
    trainer_4 = SFTTrainer(llm)
    trainer_4.train()

# case: a name that only a star import gives
from tools import *
print(trainer)
SFTTrainer(llm).train()
# output
from tools import *
print(trainer)
trainer_2 = SFTTrainer(llm)
trainer_2.train()

# case: several, each with a name of its own
SFTTrainer(llm).train(); x = 1
if x:
    y = SFTTrainer(llm).train()
# output
trainer = SFTTrainer(llm)
trainer.train()
x = 1
if x:
    trainer_2 = SFTTrainer(llm)
    y = trainer_2.train()

# case: calls after train()
y = SFTTrainer(llm).train().metrics.items()
# decline, line 1: this Trainer has no name; assign it to a variable on a line of its own

# case: below a colon
if x: SFTTrainer(llm).train()
# decline, line 1: this Trainer has no name; assign it to a variable on a line of its own

# case: in functions
def fit(k):
    # each fold
    for fold in range(k):
        SFTTrainer(
            llm,
            train_dataset=folds[fold],
            formatting_func="""
            a {}
            """.format,
        ).train()
    return SFTTrainer(llm).train()
fit(3)
# output
def fit(k):
    # each fold
    for fold in range(k):
        trainer = SFTTrainer(
            llm,
            train_dataset=folds[fold],
            formatting_func="""
            a {}
            """.format,
        )
        trainer.train()
    trainer_2 = SFTTrainer(llm)
    return trainer_2.train()
fit(3)

# case: a chain in parentheses
result = (
    trl
    .SFTTrainer(llm)
    # go
    .train()
)
# output
trainer = (trl
    .SFTTrainer(llm))
result = (
    trainer
    # go
    .train()
)

# case: made by a function
def make():
    return SFTTrainer(llm)
make().train()
# output
def make():
    return SFTTrainer(llm)
trainer = make()
trainer.train()

# case: a function of Unsloth's that trains
stats = unsloth_train(SFTTrainer(llm))
# output
trainer = SFTTrainer(llm)
stats = unsloth_train(trainer)

# case: the notebook frees the model
from transformers import AutoModel
llm = AutoModel.from_pretrained("m")
SFTTrainer(llm).train()
del llm
# output
from transformers import AutoModel
llm = AutoModel.from_pretrained("m")
trainer = SFTTrainer(llm)
trainer.train()
del trainer  # nb2ddp: it holds the model, which is to be freed
del llm

# case: no statement of its own
x = [SFTTrainer(llm, args=a).train() for a in settings]
# decline, line 1: this Trainer has no name; assign it to a variable on a line of its own

# case: a lambda with a name, which is a function
fit = lambda: SFTTrainer(llm).train()
fit()
# output
def fit():
    trainer = SFTTrainer(llm)
    return trainer.train()
fit()

# case: a lambda without one
call(lambda: SFTTrainer(llm).train())
# decline, line 1: this Trainer has no name; assign it to a variable on a line of its own

# case: a condition
if SFTTrainer(llm).train().training_loss < 1:
    print("good")
# decline, line 1: this Trainer has no name; assign it to a variable on a line of its own

# case: evaluated in a call, where a name would come too late
print(Trainer(llm).evaluate())
# decline, line 1: this Trainer has no name; assign it to a variable on a line of its own

# case: a model put into training mode
model().train()
