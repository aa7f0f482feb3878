# Magics that only concern the notebook's display are removed.

# case: plots
%matplotlib inline
x = 1
# output
x = 1

# case: extensions
%load_ext autoreload
%autoreload 2
x = 1
# output
x = 1

# case: help
len?
x = 1
# output
x = 1

# case: a variable shown
%env A
x = 1
# output
x = 1

# case: alone in a block
if big:
  %matplotlib inline
# output
if big:
  pass

# case: with a comment above
# plots
%matplotlib inline
x = 1
# output
# plots
x = 1

# case: captured output that is not read
%%capture out
x = 1
# output
x = 1

# case: captured output under a name used for more
%%capture out
x = 1
out = model(x)
print(out)
# output
x = 1
out = model(x)
print(out)

# case: the import of get_ipython
from IPython import get_ipython
x = 1
# output
x = 1

# case: the import of get_ipython among others, which need IPython anyway
from IPython import get_ipython, version_info
x = 1

# case: the import of get_ipython on a line with more
import os; from IPython import get_ipython; x = 1
# output
import os; pass; x = 1
