# What is no magic of the run is left alone.

# case: Python
x = 5 % 3

# case: a shell line
!ls

# case: an install
%pip install unsloth

# case: a text that looks like a magic
text = """
%env A=1
"""

# case: a cell that is timed
%%time
x = 1

# case: a captured cell
%%capture
x = 1

# case: a captured cell below its title
#@title Install
%%capture
x = 1

# case: a bash cell
%%bash
ls
