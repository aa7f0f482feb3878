# A vision model is sharded with its tower; its collator takes the model before that.

# first cell
from unsloth import FastVisionModel
from unsloth.trainer import UnslothVisionDataCollator
from trl import SFTConfig, SFTTrainer
model, processor = FastVisionModel.from_pretrained("m", load_in_4bit = True)
model = FastVisionModel.get_peft_model(model, finetune_vision_layers = True, r = 16)
FastVisionModel.for_training(model)

# case: a collator in the Trainer's call, generation, and a save
# flags: --strategy fsdp
trainer = SFTTrainer(model = model, data_collator = UnslothVisionDataCollator(model, processor), train_dataset = rows)
trainer.train()
FastVisionModel.for_inference(model)
out = model.generate(**inputs)
model.save_pretrained("lora")
# output
trainer = SFTTrainer(model = model, data_collator = UnslothVisionDataCollator(model, processor), train_dataset = rows)
trainer.train()
FastVisionModel.for_inference(model)
out = model.generate(**inputs)
ddp.save_shards(trainer, "lora")

# case: a collator with a name
# flags: --strategy fsdp
collator = UnslothVisionDataCollator(model, processor)
trainer = SFTTrainer(model = model, data_collator = collator, train_dataset = rows)
trainer.train()
trainer.model.save_pretrained("lora")
# output
collator = UnslothVisionDataCollator(model, processor)
trainer = SFTTrainer(model = model, data_collator = collator, train_dataset = rows)
trainer.train()
ddp.save_shards(trainer, "lora")

# case: merging needs it whole
# flags: --strategy fsdp
trainer = SFTTrainer(model = model, data_collator = UnslothVisionDataCollator(model, processor), train_dataset = rows)
trainer.train()
model.save_pretrained_merged("merged", processor)
# decline, line 3: this use of the model (model.save_pretrained_merged()) needs it whole...
