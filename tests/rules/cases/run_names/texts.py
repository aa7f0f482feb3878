# A text with a time or a random id in it is one name for all ranks.

# first cell
import os, time, uuid
import datetime as dt
from datetime import datetime
from trl import SFTConfig, SFTTrainer

# case: f"run-{datetime.now():%H%M}"
name = f"run-{datetime.now():%H%M}"
# output
name = ddp.from_main_process(lambda: f"run-{datetime.now():%H%M}")

# case: "run-" + time.strftime("%Y%m%d")
name = "run-" + time.strftime("%Y%m%d")
# output
name = ddp.from_main_process(lambda: "run-" + time.strftime("%Y%m%d"))

# case: datetime.now().strftime("%H%M%S")
name = datetime.now().strftime("%H%M%S")
# output
name = ddp.from_main_process(lambda: datetime.now().strftime("%H%M%S"))

# case: dt.datetime.now().isoformat()
name = dt.datetime.now().isoformat()
# output
name = ddp.from_main_process(lambda: dt.datetime.now().isoformat())

# case: os.path.join("out", str(int(time.time())))
name = os.path.join("out", str(int(time.time())))
# output
name = ddp.from_main_process(lambda: os.path.join("out", str(int(time.time()))))

# case: uuid.uuid4().hex[:8]
name = uuid.uuid4().hex[:8]
# output
name = ddp.from_main_process(lambda: uuid.uuid4().hex[:8])

# case: "run-%d" % time.time()
name = "run-%d" % time.time()
# output
name = ddp.from_main_process(lambda: "run-%d" % time.time())

# last cell
trainer = SFTTrainer(model)
trainer.train()
