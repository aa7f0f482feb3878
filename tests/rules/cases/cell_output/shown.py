# The value of a cell's last line is printed, as the notebook shows it.

# case: three cells
x = 1
x
# %%
y = 2
# %%
x + y
# output
x = 1
ddp.show(x)
# %%
y = 2
# %%
ddp.show(x + y)

# case: each value of a cell, where the notebook says so
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.ast_node_interactivity = "all"
a
b
# %%
x
y = 1; y; print(y)
if y:
    x
z
# %%
x
y;
# %%
x
InteractiveShell.ast_node_interactivity = "last_expr"
# %%
x
y
# output
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.ast_node_interactivity = "all"
a
ddp.show(b)
# %%
ddp.show(x)
y = 1; ddp.show(y); print(y)
if y:
    ddp.show(x)
ddp.show(z)
# %%
x
y;
# %%
ddp.show(x)
InteractiveShell.ast_node_interactivity = "last_expr"
# %%
x
ddp.show(y)

# case: each value of a cell, by a magic
%config InteractiveShell.ast_node_interactivity = "all"
# %%
x
y
# output
get_ipython().run_line_magic('config', 'InteractiveShell.ast_node_interactivity = "all"')
# %%
ddp.show(x)
ddp.show(y)

# case: display
for batch in batches:
    display(batch, display_id=True)  # look at it
display(df, df.shape)
# output
for batch in batches:
    ddp.show(batch, display_id=True)  # look at it
ddp.show(df, df.shape)

# case: display of IPython, and one whose handle is used
from IPython.display import clear_output, display
display(figure)
handle = display(df, display_id=True)
# output
from IPython.display import clear_output, display
ddp.show(figure)
handle = ddp.show(df, display_id=True)

# case: the notebook's own display
def display(x):
    print(x)
display(1)

# case: a line whose time is taken several times
%timeit len(x)
# output
len(x);

# case: a timed line
%time len(x)
# output
ddp.show(len(x))
