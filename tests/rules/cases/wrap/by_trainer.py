# With --wrap trainer the Trainer wraps the model itself.

# case: one line
# flags: --wrap trainer
from trl import SFTConfig, SFTTrainer
t = SFTTrainer(llm, args=SFTConfig("o"))
t.train()
# output
from trl import SFTConfig, SFTTrainer
t = SFTTrainer(llm, args=SFTConfig("o", ddp_find_unused_parameters=False))
t.train()
ddp.check_replicas(t.model)

# case: one argument per line
# flags: --wrap trainer
from trl import SFTConfig, SFTTrainer
args = SFTConfig(
    output_dir = "o",  # here
)
t = SFTTrainer(llm, args=args)
t.train()
# output
from trl import SFTConfig, SFTTrainer
args = SFTConfig(
    output_dir = "o",  # here
    ddp_find_unused_parameters = False,
)
t = SFTTrainer(llm, args=args)
t.train()
ddp.check_replicas(t.model)

# case: the notebook says it already
# flags: --wrap trainer
from trl import SFTConfig, SFTTrainer
t = SFTTrainer(llm, args=SFTConfig("o", ddp_find_unused_parameters=True))
t.train()
# output
from trl import SFTConfig, SFTTrainer
t = SFTTrainer(llm, args=SFTConfig("o", ddp_find_unused_parameters=True))
t.train()
ddp.check_replicas(t.model)

# case: arguments that are never used
# flags: --wrap trainer
from trl import SFTConfig
if False:
    args = SFTConfig('o')

# case: a vision model of Unsloth
# flags: --wrap trainer
from unsloth import FastVisionModel
m = FastVisionModel.from_pretrained("m")
from trl import SFTConfig, SFTTrainer
t = SFTTrainer(llm, args=SFTConfig("o"))
t.train()
# output
from unsloth import FastVisionModel
m = FastVisionModel.from_pretrained("m")
from trl import SFTConfig, SFTTrainer
t = SFTTrainer(llm, args=SFTConfig("o", ddp_find_unused_parameters=True))
t.train()
ddp.check_replicas(t.model)

# case: a vision model of Transformers
# flags: --wrap trainer
from transformers import AutoModelForImageTextToText
m = AutoModelForImageTextToText.from_pretrained("m")
from trl import SFTConfig, SFTTrainer
t = SFTTrainer(llm, args=SFTConfig("o"))
t.train()
# output
from transformers import AutoModelForImageTextToText
m = AutoModelForImageTextToText.from_pretrained("m")
from trl import SFTConfig, SFTTrainer
t = SFTTrainer(llm, args=SFTConfig("o", ddp_find_unused_parameters=True))
t.train()
ddp.check_replicas(t.model)

# case: a mixture of experts
# flags: --wrap trainer
from unsloth import FastLanguageModel as F
m = F.from_pretrained("x/Q-30B-A3B")
from trl import SFTTrainer
t = SFTTrainer(llm)
t.train()
# output
from unsloth import FastLanguageModel as F
m = F.from_pretrained("x/Q-30B-A3B")
from trl import SFTTrainer
t = SFTTrainer(llm)
t.train()
ddp.check_replicas(t.model)
# note, line 2: with --wrap trainer the run stops at a step that leaves out one of this model's experts; without it the run goes on

# case: a Trainer of Transformers, which multiplies a mean by the number of ranks
# flags: --wrap trainer
from transformers import Trainer, TrainingArguments
t = Trainer(llm, TrainingArguments("o", ddp_find_unused_parameters=False))
t.train()
# output
from transformers import Trainer, TrainingArguments
t = Trainer(llm, TrainingArguments("o", ddp_find_unused_parameters=False))
ddp.prepare_trainer(t)  # nb2ddp: the loss of one process
t.train()
ddp.check_replicas(t.model)
