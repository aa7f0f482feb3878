# Only Unsloth's own sharding is used, in a Trainer.

# case: a Trainer without Unsloth
# flags: --strategy fsdp
from transformers import Trainer
trainer = Trainer(model)
trainer.train()
# decline: --strategy fsdp shards the model with Unsloth, which this notebook does not use; use --strategy ddp, or --strategy balanced if the model does not fit one GPU

# case: a loop
# flags: --strategy fsdp
from unsloth import FastLanguageModel
model, tokenizer = FastLanguageModel.from_pretrained("m")
for batch in loader:
    model(**batch).loss.backward()
    optimizer.step()
# decline, line 4: Unsloth shards a model in a Trainer, not in a training loop...

# case: another loader
# flags: --strategy fsdp
from unsloth import FastModel
from trl import SFTTrainer
model, tokenizer = FastModel.from_pretrained("m")
trainer = SFTTrainer(model)
trainer.train()
# decline, line 3: FastModel has not been shown to train the same run with a sharded model...

# case: experts
# flags: --strategy fsdp
from unsloth import FastLanguageModel
from trl import SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("unsloth/Qwen3-30B-A3B")
trainer = SFTTrainer(model)
trainer.train()
# decline, line 3: a model with experts has not been shown to train the same run sharded...
