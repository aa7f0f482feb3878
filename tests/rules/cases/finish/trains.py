# After the last statement that needs every rank, the other ranks end and rank 0 goes on.

# first cell
from trl import SFTTrainer
trainer = SFTTrainer(model)

# case: training that never runs does not count
trainer.train()
if False:
    trainer.train()
# output
trainer.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
if False:
    trainer.train()

# case: the rest of the line runs on rank 0
trainer.train(); model.save_pretrained("lora")  # done
# output
trainer.train()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
model.save_pretrained("lora")  # done

# case: the last collective call is in another cell
trainer.train()
# %%
x = 1
# %%
trainer.evaluate()
# %%
model.push_to_hub('m')
# output
trainer.train()
# %%
x = 1
# %%
trainer.evaluate()
ddp.finish()  # nb2ddp: only rank 0 runs what follows
# %%
model.push_to_hub('m')
