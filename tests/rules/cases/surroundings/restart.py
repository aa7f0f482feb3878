# What restarts a notebook's kernel after it has installed something would end a script.

# first cell
import os
from trl import SFTTrainer

# case: the process ends itself
os.kill(os.getpid(), 9)
# output
# nb2ddp: a script needs no new kernel: it goes on with what it has installed

# case: by IPython
import IPython
IPython.Application.instance().kernel.do_shutdown(True)
# output
import IPython
# nb2ddp: a script needs no new kernel: it goes on with what it has installed

# case: Colab's conda, which ends the kernel
import condacolab
condacolab.install()
# output
# nb2ddp: a script needs no new kernel: it goes on with what it has installed

# case: another process ends
os.kill(server.pid, 9)

# case: a signal that the notebook handles, and one that restarts nothing
import signal
signal.signal(signal.SIGTERM, stop)
os.kill(os.getpid(), signal.SIGTERM)
os.kill(os.getpid(), signal.SIGUSR1)

# case: a signal that nothing handles
import signal
os.kill(os.getpid(), signal.SIGTERM)
# output
import signal
# nb2ddp: a script needs no new kernel: it goes on with what it has installed

# last cell
trainer = SFTTrainer(model)
trainer.train()
