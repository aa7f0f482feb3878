# A script has no IPython: get_ipython() is None.

# case: as text
if "colab" in str(get_ipython()):
    x = 1
# output
if "colab" in str(None):
    x = 1

# case: whether there is one
if get_ipython():
    x = 1
# output
if None:
    x = 1

# case: by its module
import IPython
shell = IPython.get_ipython()
shell.run_line_magic("matplotlib", "inline")
IPython.get_ipython().run_line_magic("cd", "a")
# output
import IPython
shell = None
ddp.cd("a")

# case: which values it shows
get_ipython().ast_node_interactivity = "all"
x = 1
# output
x = 1

# case: its class
name = get_ipython().__class__.__name__
# output
name = None.__class__.__name__
