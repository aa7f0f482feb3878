# A login that asks for a token is removed: HF_TOKEN or WANDB_API_KEY gives it.

# first cell
from huggingface_hub import login

# case: without a token
login()
x = 1
# output
# nb2ddp: a script reads the token from HF_TOKEN
x = 1

# case: the token is None
login(token=None)
x = 1
# output
# nb2ddp: a script reads the token from HF_TOKEN
x = 1

# case: another argument
login(add_to_git_credential=True)
x = 1
# output
# nb2ddp: a script reads the token from HF_TOKEN
x = 1

# case: the notebook's form
from huggingface_hub import notebook_login
notebook_login()
x = 1
# output
from huggingface_hub import notebook_login
# nb2ddp: a script reads the token from HF_TOKEN
x = 1

# case: with a token
login(token)

# case: with a token by keyword
login(token=key)

# case: with a literal token
login("hf_x")

# case: its result is used
done = login()
# note, line 1: a script cannot ask for a token: set the environment variable HF_TOKEN, which huggingface_hub reads

# case: W&B
import wandb
wandb.login()
wandb.login(None, None, relogin=True)
x = 1
# output
import wandb
# nb2ddp: a script reads the token from WANDB_API_KEY
# nb2ddp: a script reads the token from WANDB_API_KEY
x = 1
# note, line 2: a script cannot ask for a token: set the environment variable WANDB_API_KEY, which wandb reads

# case: W&B's result is used
import wandb
x = wandb.login(timeout=9)
# note, line 2: a script cannot ask for a token: ...

# case: W&B with a key, a server of one's own, and no account
import wandb
wandb.login(key=key)
wandb.login(key)
wandb.login(None, key)
wandb.login(host="https://wandb.example.org")
wandb.login(anonymous="must")
