# A name with a time or a random id in it is made on rank 0.

# case: the output folder in the training arguments
import os, time, uuid
import datetime as dt
from datetime import datetime
from trl import SFTConfig, SFTTrainer
args = SFTConfig(output_dir=f"out/{time.time()}", learning_rate=1e-4)
trainer = SFTTrainer(model)
trainer.train()
# output
import os, time, uuid
import datetime as dt
from datetime import datetime
from trl import SFTConfig, SFTTrainer
args = SFTConfig(output_dir=ddp.from_main_process(lambda: f"out/{time.time()}"), learning_rate=1e-4)
trainer = SFTTrainer(model)
trainer.train()
