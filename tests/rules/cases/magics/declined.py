# A magic that has no equivalent in Python is declined by name.

# case: a magic that runs a statement
%lprun -f f f()
# decline, line 1: %lprun runs code, or gives names a value; write it in Python

# case: an unknown cell magic
%%cython
x
# decline, line 1: %%cython is a cell magic that nb2ddp does not know; write it in Python

# case: another notebook's code
%run other.ipynb
# decline, line 1: %run runs code, or gives names a value; write it in Python

# case: a folder of the history
%cd -2
# decline, line 1: a script has no history that %cd could go back in; name the folder

# case: the value of a magic
files = %ls
# decline, line 1: the value of %ls is not there in a script; write it in Python

# case: captured output that is read
%%capture out
x = 1
print(out)
# decline, line 1: the output that %%capture keeps in out is not there in a script; print it instead

# case: the kernel
get_ipython().kernel.do_shutdown(True)
# decline, line 1: get_ipython().kernel has no meaning in a script; remove it, or write it in Python

# case: a magic that the notebook puts together
get_ipython().run_line_magic("env", f"A={a}")
# decline, line 1: get_ipython().run_line_magic has no meaning in a script; remove it, or write it in Python

# case: code as text
get_ipython().run_cell("x = 1")
# decline, line 1: get_ipython().run_cell has no meaning in a script; remove it, or write it in Python

# case: the figures of %timeit
t = %timeit -o f()
# decline, line 1: the value of %timeit is not there in a script; write it in Python

# case: a module that is written again where %autoreload reads it again
%load_ext autoreload
%autoreload 2
# %%
%%writefile steps.py
rate = 0.1
# %%
import steps
# %%
%%writefile steps.py
rate = 0.2
# decline, cell 4, line 1: %autoreload reads steps.py again here, and a script reads a module once: write it before its import

# case: a function that IPython is to call, by a name for the shell
shell = get_ipython()
shell.events.register("pre_run_cell", style)
# decline, line 1: get_ipython().events has no meaning in a script; remove it, or write it in Python
