# With `--strategy fsdp` all ranks are needed until the last use of the sharded model.

# first cell
from unsloth import FastLanguageModel
from trl import SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("m")

# case: saved and generated
# flags: --strategy fsdp
trainer = SFTTrainer(model)
trainer.train()
model.save_pretrained("lora")
model.generate(**inputs)
tokenizer.save_pretrained("lora")
# output
trainer = SFTTrainer(model)
trainer.train()
model.save_pretrained("lora")
model.generate(**inputs)
ddp.finish()  # nb2ddp: only rank 0 runs what follows
tokenizer.save_pretrained("lora")

# case: loaded again
# flags: --strategy fsdp
trainer = SFTTrainer(model)
trainer.train()
model, tokenizer = FastLanguageModel.from_pretrained("outputs")
model.generate(**inputs)
# output
trainer = SFTTrainer(model)
trainer.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
model, tokenizer = FastLanguageModel.from_pretrained("outputs")
model.generate(**inputs)

# case: saved by the Trainer, which gathers
# flags: --strategy fsdp
trainer = SFTTrainer(model)
trainer.train()
trainer.save_model("out")
tokenizer.save_pretrained("out")
# output
trainer = SFTTrainer(model)
trainer.train()
trainer.save_model("out")
ddp.finish()  # nb2ddp: only rank 0 runs what follows
tokenizer.save_pretrained("out")
