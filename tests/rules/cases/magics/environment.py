# %env sets the environment, as IPython does.

# case: with =
%env A=1
# output
os.environ["A"] = "1"

# case: with a space
%env A 1
# output
os.environ["A"] = "1"

# case: spaces around =
%env HF_HOME = /tmp/x
# output
os.environ["HF_HOME"] = "/tmp/x"

# case: set_env
%set_env A=b=c
# output
os.environ["A"] = "b=c"

# case: quotes, which IPython keeps
%env A="x y"
# output
os.environ["A"] = '"x y"'

# case: a variable
d = "x"
%env A={d}/y
# output
d = "x"
os.environ["A"] = f"{d}/y"

# case: under an if indented by two
if big:
  %env A=1
# output
if big:
  os.environ["A"] = "1"

# case: comments around
# first
%env A=1
# then
# output
# first
os.environ["A"] = "1"
# then

# case: called by hand, with more on the line
x = 1; get_ipython().run_line_magic('env', 'A=1'); y = 2
# output
x = 1
os.environ["A"] = "1"
y = 2

# case: its value used
home = %env HOME
# output
home = os.environ["HOME"]

# case: a comment, which IPython keeps
%env A=1 # one
# output
os.environ["A"] = "1 # one"
