# A block that only asks for the name of the module is no reason to keep the other ranks waiting for all of it.

# first cell
from datasets import load_dataset
from transformers import AutoModelForCausalLM
from trl import SFTTrainer

# last cell
trainer = SFTTrainer(model, train_dataset=rows)
trainer.train()

# case: the statement alone
if __name__ == "__main__":
    print("start")
    rows = load_dataset("d", split="train")
    model = AutoModelForCausalLM.from_pretrained("m")
# output
if __name__ == "__main__":
    print("start")
    with ddp.main_process_first():  # nb2ddp: rank 0 prepares the data, the others read its cache
        rows = load_dataset("d", split="train")
    model = AutoModelForCausalLM.from_pretrained("m")
