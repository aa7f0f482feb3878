# The install step runs before training what the notebook installs after it: another version is noted.

# first cell
from trl import SFTTrainer

# case: another version
!pip install transformers==4.56.0 "trl[vllm]" peft
t = SFTTrainer(llm)
t.train()
!pip install transformers==4.40.0 trl==0.8.1 vllm==0.6
!pip install --upgrade transformers vllm
# output
t = SFTTrainer(llm)
t.train()
# note, line 4: the notebook trains before it installs transformers==4.40.0, the script after...
# note, line 4: the notebook trains before it installs trl==0.8.1...
# note, line 5: the notebook trains before it installs transformers anew...

# case: what training does not use, and the same version
!pip install transformers==4.56.0
t = SFTTrainer(llm)
t.train()
!pip install -q vllm==0.6 transformers==4.56.0
# output
t = SFTTrainer(llm)
t.train()
