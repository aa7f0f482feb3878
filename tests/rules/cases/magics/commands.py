# A magic that is a command runs once.

# case: ls
%ls -l
# output
ddp.shell("ls -l")

# case: mkdir
%mkdir -p out
# output
ddp.shell("mkdir -p out")

# case: a list of packages
%pip list
# output
ddp.shell("pip list")
