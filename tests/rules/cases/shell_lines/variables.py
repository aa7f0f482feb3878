# The variables of a shell line are expanded as IPython does it.

# case: a variable in braces
url = "u"
!wget {url}
# output
url = "u"
ddp.shell(f"wget {url}")

# case: a variable with a dollar
url = "u"
!wget $url
# output
url = "u"
ddp.shell(f"wget {url}")

# case: one of them is a variable of the shell
url = "u"
!wget $url -P $HOME
# output
url = "u"
ddp.shell("wget $url -P $HOME")

# case: a name that the notebook does not bind
!echo {url}
# output
ddp.shell("echo {url}")

# case: an expression
d = {"a": 1}
!echo {d["a"]}
# output
d = {"a": 1}
ddp.shell(f'echo {d["a"]}')

# case: doubled braces
x = 1
!echo {{x}} $$
# output
x = 1
ddp.shell("echo {x} $$")
