# What generates with the sharded model, or saves it, is run by every rank; the rest of the notebook stays.

# first cell
from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
model, tokenizer = FastLanguageModel.from_pretrained("m", load_in_4bit = True)
model = FastLanguageModel.get_peft_model(model, r = 16)

# case: a folder
# flags: --strategy fsdp
trainer = SFTTrainer(model)
trainer.train()
model.save_pretrained("lora") # Local saving
tokenizer.save_pretrained("lora")
# output
trainer = SFTTrainer(model)
trainer.train()
ddp.save_shards(trainer, "lora") # Local saving
tokenizer.save_pretrained("lora")

# case: by keyword, from the Trainer
# flags: --strategy fsdp
t = SFTTrainer(model)
t.train()
t.model.save_pretrained(save_directory = folder)
# output
t = SFTTrainer(model)
t.train()
ddp.save_shards(t, folder)

# case: generation, and what needs no weights
# flags: --strategy fsdp
trainer = SFTTrainer(model)
print(model.device)
trainer.train()
FastLanguageModel.for_inference(model)
model.generation_config.max_length = 20
model.eval()
out = model.generate(**inputs)
del model

# case: dead code
# flags: --strategy fsdp
trainer = SFTTrainer(model)
trainer.train()
if False:
    model.save_pretrained_merged("merged", tokenizer)

# case: before the Trainer
# flags: --strategy fsdp
def count(m):
    return m.get_input_embeddings().weight.sum()
count(model)
model.save_pretrained("start")
model.merge_and_unload()
trainer = SFTTrainer(model)
trainer.train()

# case: a model that is loaded again
# flags: --strategy fsdp
trainer = SFTTrainer(model)
trainer.train()
model, tokenizer = FastLanguageModel.from_pretrained("lora")
model.save_pretrained_merged("merged", tokenizer)

# case: with a copy on each GPU
trainer = SFTTrainer(model)
trainer.train()
model.save_pretrained("lora")
