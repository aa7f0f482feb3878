# pyplot by its usual name, which the star import of another module gives.

# first cell
from helpers import *

# case: a figure
plt.figure(figsize=(3, 3))
plt.plot([1], [2]);
# output
plt.figure(figsize=(3, 3))
plt.plot([1], [2]);
ddp.save_plots()

# case: a name of the notebook
plt = print
plt.plot([1], [2]);
