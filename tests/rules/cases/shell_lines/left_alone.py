# What is no shell line of the run is left alone.

# case: Python
x = 1

# case: an install
!pip install unsloth

# case: a text that looks like a shell line
text = """
!ls
"""

# case: a magic
%env A=1

# case: os.system, which rank-zero sees to
import os
os.system("ls")
