# A shell line runs once, on rank 0, as it is written.

# case: a command
!nvidia-smi
# output
ddp.shell("nvidia-smi")

# case: double quotes inside
!python -c "print(1)"
# output
ddp.shell('python -c "print(1)"')

# case: both quotes inside
!echo "it's" x
# output
ddp.shell("""echo "it's" x""")

# case: a command that the notebook puts together
get_ipython().system("echo " + name)
lines = get_ipython().getoutput(f"ls {name}")
# output
ddp.shell("echo " + name)
lines = ddp.shell_output(f"ls {name}")

# case: by a name of the shell
from IPython import get_ipython
shell = get_ipython()
shell.run_line_magic("autoreload", "2")
shell.system("ls")
# output
from IPython import get_ipython
shell = get_ipython()
shell.run_line_magic("autoreload", "2")
ddp.shell("ls")

# case: by an attribute that keeps the shell
class Tools:
    def __init__(self):
        self.shell = get_ipython()
    def fetch(self, name):
        return self.shell.getoutput("ls " + name)
# output
class Tools:
    def __init__(self):
        self.shell = get_ipython()
    def fetch(self, name):
        return ddp.shell_output("ls " + name)

# case: by an attribute that keeps the shell later
class Tools:
    shell = None
    def __init__(self):
        self.shell = None
    def start(self):
        self.shell = get_ipython()
        self.shell.system("ls")
# output
class Tools:
    shell = None
    def __init__(self):
        self.shell = None
    def start(self):
        self.shell = get_ipython()
        ddp.shell("ls")

# case: an attribute that keeps something else in another class
class Tools:
    def __init__(self):
        self.host = get_ipython()
class Lab:
    def __init__(self):
        self.host = Cluster()
Lab().host.system("solar")

# case: indented by two
if big:
  !ls -l  # why
# output
if big:
  ddp.shell("ls -l  # why")

# case: in a function
def f():
    !ls
    return 1
# output
def f():
    ddp.shell("ls")
    return 1

# case: in the background
!nohup vllm serve m &
# output
ddp.shell("nohup vllm serve m &")

# case: braces of the shell
!mkdir -p {a,b} && awk '{print $1}' f
# output
ddp.shell("mkdir -p {a,b} && awk '{print $1}' f")

# case: a backslash
!grep '\d' f
# output
ddp.shell("grep '\\d' f")

# case: not ASCII
!echo ünï
# output
ddp.shell("echo ünï")

# case: called by hand
get_ipython().system("ls")
# output
ddp.shell("ls")
