# A module that a cell writes is written once; one that keeps a file open is noted, for every rank imports it.

# case: a module that writes where a function is called
%%writefile tools/steps.py
def keep(x):
    with open("log.txt", "a") as f:
        f.write(x)
# %%
from tools.steps import keep
# output
ddp.write_file("tools/steps.py", """def keep(x):
    with open("log.txt", "a") as f:
        f.write(x)
""")
# %%
from tools.steps import keep

# case: a module that keeps a log open
%%writefile log.py
f = open("log.txt", "a")
# %%
import log
# output
ddp.write_file("log.py", """f = open("log.txt", "a")
""")
# %%
import log
# note, cell 1, line 1: log.py keeps a file open, to which every rank that imports it writes: open it in a cell

# case: a module that nothing imports, and one that is no Python
%%writefile log.py
f = open("log.txt", "a")
# %%
%%writefile other.py
f = open("log.txt" "a"
# %%
import other
# output
ddp.write_file("log.py", """f = open("log.txt", "a")
""")
# %%
ddp.write_file("other.py", """f = open("log.txt" "a"
""")
# %%
import other
