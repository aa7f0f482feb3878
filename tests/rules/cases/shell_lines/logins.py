# A login that would wait for a keyboard is left out; one that is given its token stays.

# case: without a token
!wandb login
!huggingface-cli login
!hf auth login
x = 1
# output
# nb2ddp: a script reads the token from WANDB_API_KEY
# nb2ddp: a script reads the token from HF_TOKEN
# nb2ddp: a script reads the token from HF_TOKEN
x = 1
# note, line 1: this asks for a token at the keyboard, which a script has not: set WANDB_API_KEY in its environment
# note, line 2: this asks for a token at the keyboard, which a script has not: set HF_TOKEN in its environment

# case: with a token
token = "t"
!huggingface-cli login --token {token}
!wandb login $token
# output
token = "t"
ddp.shell(f"huggingface-cli login --token {token}")
ddp.shell(f"wandb login {token}")
