# A cell's figures are shown at its end, as Jupyter does.

# first cell
import matplotlib.pyplot as plt
import pandas as pd

# case: three cells, of which one shows by itself
plt.plot([1, 2]);
# %%
frame = pd.read_csv("a.csv")
frame.plot();
# %%
plt.hist([1])
plt.show()
# output
plt.plot([1, 2]);
ddp.save_plots()
# %%
frame = pd.read_csv("a.csv")
frame.plot();
ddp.save_plots()
# %%
plt.hist([1])
plt.show()

# case: a function that draws
def draw(values):
    plt.plot(values)
# %%
draw([1])
print("drawn")
# output
def draw(values):
    plt.plot(values)
# %%
draw([1])
print("drawn")
ddp.save_plots()

# case: a library that may draw
import lib
lib.semilogy([1], [2])
shown = lib.show_all([1])
# output
import lib
lib.semilogy([1], [2])
shown = lib.show_all([1])
ddp.save_plots()

# case: what a library draws, by a name, and what it gives otherwise
import lib
import numpy as np
counts = np.histogram([1])
rows = lib.read_history("a.csv")
# %%
truth = lib.imshow([1])
# output
import lib
import numpy as np
counts = np.histogram([1])
rows = lib.read_history("a.csv")
# %%
truth = lib.imshow([1])
ddp.save_plots()

# case: names that %pylab gives
%pylab inline
plot([1], [2]);
# %%
hist([1])
show()
# output
import numpy, numpy as np, matplotlib, matplotlib.pyplot as plt; from matplotlib import mlab, pylab, pyplot; figsize = lambda x, y: pylab.rcParams.update({'figure.figsize': [x, y]}); from matplotlib.pylab import *; from numpy import *
plot([1], [2]);
ddp.save_plots()
# %%
hist([1])
show()

# case: pyplot by pylab's name
import matplotlib.pylab as pl
import pylab
pl.plot([1], [2]);
# %%
pylab.hist([1]);
# %%
from pylab import *
plot([1], [2]);
# output
import matplotlib.pylab as pl
import pylab
pl.plot([1], [2]);
ddp.save_plots()
# %%
pylab.hist([1]);
ddp.save_plots()
# %%
from pylab import *
plot([1], [2]);
ddp.save_plots()

# case: settings, and a figure that is closed
plt.style.use("ggplot")
plt.rcParams["figure.dpi"] = 100
# %%
fig, axes = plt.subplots()
fig.savefig("a.png")
plt.close()
