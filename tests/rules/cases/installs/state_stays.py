# What a cell does beside its install stays in the script.

# case: environment
import os
os.environ["A"] = "1"
!pip install unsloth
os.environ["B"] = "2"
# output
import os
os.environ["A"] = "1"
os.environ["B"] = "2"

# case: environment under an if, indented by two
import os
if colab:
  !pip install unsloth
  os.environ["A"] = "1"  # needed
# output
if colab:
  os.environ["A"] = "1"  # needed

# case: comments
# Install
!pip install unsloth
# then set it up
x = 1
# output
# Install
# then set it up
x = 1

# case: a name that is used later
version = "2.4"
!pip install torch=={version}
print(version)
# output
version = "2.4"
print(version)

# case: a function that others call
def setup():
    !pip install unsloth
    return 1
x = setup()
# output
def setup():
    return 1
x = setup()

# case: an if that is left empty
if colab:
    !pip install unsloth
else:
    x = 1
print(x)
# output
if colab:
    pass
else:
    x = 1
print(x)

# case: the other half of a line
a = 1; get_ipython().system("pip install unsloth")
print(a)
# output
a = 1
print(a)

# case: a name that a later cell reads
version = "2.4"
!pip install torch=={version}
# %%
print(version)
# output
version = "2.4"
# %%
print(version)
