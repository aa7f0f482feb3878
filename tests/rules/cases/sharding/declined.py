# What needs the whole model, and what has not been shown to train the same run, is declined by its place.

# first cell
from unsloth import FastLanguageModel
from trl import DPOTrainer, SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("m", load_in_4bit = True)

# case: merging
# flags: --strategy fsdp
trainer = SFTTrainer(model)
trainer.train()
model.save_pretrained_merged("merged", tokenizer)
# decline, line 3: this use of the model (model.save_pretrained_merged()) needs it whole, and with --strategy fsdp each rank holds a share...

# case: in a function that is called after training
# flags: --strategy fsdp
def logits(m):
    return m.lm_head(x)
trainer = SFTTrainer(model)
trainer.train()
logits(model)
# decline, line 2: this use of the model (m.lm_head()) needs it whole...

# case: in a library's function
# flags: --strategy fsdp
from lm_eval import simple_evaluate
trainer = SFTTrainer(model)
trainer.train()
simple_evaluate(model = trainer.model)
# decline, line 4: this use of the model (trainer.model in simple_evaluate(...)) needs it whole...

# case: a forward call
# flags: --strategy fsdp
trainer = SFTTrainer(model)
trainer.train()
model(**inputs)
# decline, line 3: this use of the model (model) needs it whole...

# case: another Trainer
# flags: --strategy fsdp
trainer = DPOTrainer(model)
trainer.train()
# decline, line 1: DPOTrainer has not been shown to train the same run with a sharded model; use --strategy ddp, or --strategy balanced...

# case: two of them
# flags: --strategy fsdp
trainer = SFTTrainer(model)
trainer.train()
second = SFTTrainer(model)
second.train()
# decline, line 3: a second Trainer would get a model that is sharded already...

# case: other arguments of the save
# flags: --strategy fsdp
trainer = SFTTrainer(model)
trainer.train()
model.save_pretrained("lora", safe_serialization = False)
# decline, line 3: with --strategy fsdp save_pretrained() takes a folder alone; delete its other arguments

# case: an optimizer
# flags: --strategy fsdp
trainer = SFTTrainer(model, args = SFTConfig(optim = "galore_adamw"))
trainer.train()
# decline, line 1: galore_adamw needs whole matrices, not shards; take adamw_8bit or adamw_torch

# case: vLLM
# flags: --strategy fsdp
other, _ = FastLanguageModel.from_pretrained("m", fast_inference = True)
trainer = SFTTrainer(other)
trainer.train()
# decline, line 1: fast_inference does not go with --strategy fsdp: vLLM needs the whole model on one GPU...

# case: settings that change nothing
# flags: --strategy fsdp
trainer = SFTTrainer(model, args = SFTConfig(fsdp = None, save_on_each_node = False))
trainer.train()

# case: a model that an object or a list holds
# flags: --strategy fsdp
trainer = SFTTrainer(model)
trainer.train()
class Job:
    def __init__(self):
        self.model = model
    def go(self):
        self.model.save_pretrained_merged("merged", tokenizer)
Job().go()
held = [model]
held[0].save_pretrained_merged("merged", tokenizer)
# decline, line 7: this use of the model (self.model.save_pretrained_merged()) needs it whole...
# decline, line 10: this use of the model (held[0].save_pretrained_merged()) needs it whole...

# case: a Trainer that pushes
# flags: --strategy fsdp
trainer = SFTTrainer(model)
trainer.train()
trainer.push_to_hub()
# decline, line 3: with --strategy fsdp a Trainer pushes from one rank, which holds a share...
