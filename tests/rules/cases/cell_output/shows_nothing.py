# A cell that shows nothing is left alone.

# case: an assignment
x = 1

# case: a semicolon behind the value
plt.plot(losses);

# case: a comment behind the semicolon
plt.plot(losses);  # no text above the plot

# case: print
print(x)

# case: print by lines
pprint.pp(x)

# case: training
trainer.train()

# case: evaluation
trainer.evaluate()

# case: the model's own report
model.print_trainable_parameters()

# case: saving
model.save_pretrained("lora")

# case: pushing
tokenizer.push_to_hub("me/lora", token="x")

# case: appending to a list
losses.append(1)

# case: a setting with a default
import os
os.environ.setdefault("WANDB_DISABLED", "true")

# case: a search path
import sys
sys.path.insert(0, ".")

# case: a shell line
!ls

# case: a value inside an if
if True:
    x

# case: a function at the end
def f():
    x

# case: what Colab does with its page
from google.colab import drive
drive.mount("/content/drive")

# case: a table's own report, and one that is changed in place
import pandas as pd
df.info()
# %%
df.drop(columns=["a"], inplace=True)
# %%
df.fillna(0, inplace=True)

# case: what shuffles in place
import random
random.shuffle(rows)

# case: a gradient
loss.backward()
# %%
optimizer.zero_grad()
